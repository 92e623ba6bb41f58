"""A cluster in memory for the page: as many nodes as wanted, most cards with pods on them, and pods that wait."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from config.protocol import names
from config.protocol.inventory import Card, Health
from scheduler.core.engine import Engine
from scheduler.kube.rest.reviews import User
from scheduler.tools.page.access import Guard
from scheduler.tools.page.page_parts import SchedulerParts, page_parts
from scheduler.tools.page.server import PageServer, serve_page
from tests.support.builders import READER, UNIT_MIB, bound, card, engine, pod, wire_node

TOKEN = "token-of-ann"  # noqa: S105 - accepted by nobody but the reviewer below
HOSTILE = "<script>document.title='owned'</script><img src=x onerror=document.title='owned'>"
TEAMS = ("team-a", "team-b", "team-c")
_UNITS = (24, 40, 16, 80, 8)


class Reviewer:
    """TOKEN may look at everything but the pods of team-b."""

    async def user_of(self, token: str) -> User | None:
        """Ann, or nobody."""
        return User("ann") if token == TOKEN else None

    async def may_get_url(self, user: User, path: str) -> bool:
        """The page."""
        return (user.username, path) == ("ann", "/gpushare")

    async def may_list_pods(self, user: User, namespace: str) -> bool:
        """Her own, and those of team-c."""
        return user.username == "ann" and namespace in {"team-a", "team-c"}


def filled(nodes: int, cards: int = 8) -> Engine:
    """Nodes of 80 units a card; on three of four cards a pod of 8 to 80 units. Some cards are out of use."""
    made = engine()
    for number in range(nodes):
        made.node_changed(wire_node(f"gpu-{number:05}", _cards(number, cards), pods="250"))
    for number in range(nodes * cards):
        if number % 4:
            at, index = divmod(number, cards)
            place(made, f"serve-{number}", (f"gpu-{at:05}", index), _UNITS[number % 5], TEAMS[number % 3])
    made.pod_waiting(pod("too-large", 200, namespace="team-a", priority=5), 0.0)
    made.pod_waiting(pod(HOSTILE, 300, namespace="team-c"), 0.0)
    while made.decide(0.0, 0) is not None:
        pass
    return made


def _cards(node: int, count: int) -> list[Card]:
    health = {0: Health.UNHEALTHY, 1: Health.SUSPECT}.get(node % 50, Health.HEALTHY)
    usual = [card(index, 80, node=f"{node}", model="NVIDIA-H100-80GB") for index in range(count)]
    return [card(0, 80, node=f"{node}", model="NVIDIA-H100-80GB", health=health), *usual[1:]]


def place(made: Engine, name: str, at: tuple[str, int], units: int, namespace: str = "team-a") -> None:
    """A pod on a card, as a watch shows it. at: node and card."""
    node, index = at
    on_card = {names.MEM_IDX: str(index), names.UNIT_MIB: str(UNIT_MIB)}
    made.pod_assigned(bound(pod(name, units, namespace=namespace, annotations=on_card), node))


@asynccontextmanager
async def serving(made: Engine, guard: Guard) -> AsyncIterator[PageServer]:
    """The page of this cluster, on loopback."""
    of = SchedulerParts(engine=made, reader=READER, unit_mib=UNIT_MIB, leads=lambda: True, problem=lambda: "")
    page = await serve_page(page_parts(of, guard), ("127.0.0.1", 0))
    try:
        yield page
    finally:
        await page.close()
