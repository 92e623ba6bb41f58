"""How many requests a pod costs the API server while nothing changes, whatever the API server answers."""

import asyncio
import math
from collections import Counter
from typing import Final

import pytest

from scheduler.testing.cluster.faults import Fail, Faults, Refuse, Request, RequestFault, Verb
from scheduler.testing.cluster.world import World
from tests.support.builders import wire_node
from tests.support.placing import on_card
from tests.support.volumes import HOSTNAME, claim, storage_class, volume, with_claims
from tests.system.looking import cluster, comes
from tests.system.process import in_virtual_time, now_s, scheduling
from tests.system.volume_controller import VolumeController

WRITES: Final = (
    Verb.BIND,
    Verb.BIND_VOLUME,
    Verb.SELECT_NODE,
    Verb.SET_CONDITION,
    Verb.NOMINATE,
    Verb.DELETE_POD,
    Verb.CREATE_EVENT,
    Verb.UPDATE_EVENT,
)
NO_RIGHT: Final = 'pods "p" is forbidden: User "u" cannot create resource "pods/binding" in API group ""'
OF_VOLUMES: Final = (Verb.BIND_VOLUME, Verb.SELECT_NODE)
OF_STATUS: Final = (Verb.SET_CONDITION, Verb.NOMINATE)
OF_EVENTS: Final = (Verb.CREATE_EVENT, Verb.UPDATE_EVENT)
# Of each kind.
PODS: Final = 2
# All back-offs have grown to their ends.
AT_REST_S: Final = 600.0
COUNTED_S: Final = 600.0


class Counted(Faults):
    """since_s: from when on it counts. writes: by the name of the pod, and what was written."""

    def __init__(self) -> None:
        super().__init__()
        self.since_s = math.inf
        self.writes: Counter[tuple[str, str]] = Counter()

    def hitting(self, request: Request) -> RequestFault | None:
        if request.verb in WRITES and now_s() >= self.since_s:
            self.writes[request.about.rpartition("/")[2], request.verb.value] += 1
        return super().hitting(request)

    def per_minute(self) -> dict[str, float]:
        """Of each pod."""
        found: Counter[str] = Counter()
        for (pod, _), number in self.writes.items():
            found[pod] += number
        return {pod: number * 60 / COUNTED_S for pod, number in found.items()}


def full_nodes_and_a_free_one(pods: int) -> World:
    """A node for each preemptor, whose pod may go; claims and volumes with the names of the pods that use them."""
    of = cluster(room=[64] * 4)
    controller = VolumeController(of)
    controller.comes(storage_class("fast"), storage_class("local", provisioner="kubernetes.io/no-provisioner"))
    for number in range(pods):
        of.nodes.add(wire_node(f"n{number}", [16]))
        comes(of, f"low-{number}", 16, node=f"n{number}", priority=1, annotations=on_card(0, 16))
        controller.comes(
            claim(f"made-{number}", class_name="fast"),
            claim(f"taken-{number}", class_name="local", selector={"matchLabels": {"of": f"{number}"}}),
            volume(f"taken-{number}", class_name="local", on=("room",), key=HOSTNAME, labels={"of": f"{number}"}),
        )
    return of


def come(of: World, number: int) -> None:
    """A pod of each kind: it fits, is too large, preempts, needs a volume that is to be made, or one that is there."""
    comes(of, f"fits-{number}", 1, priority=20)
    comes(of, f"large-{number}", 999, priority=20)
    comes(of, f"urgent-{number}", 16, to=f"n{number}", priority=10)
    for kind in ("made", "taken"):
        comes(of, f"{kind}-{number}", 1, to="room", priority=20, **with_claims(f"{kind}-{number}"))


@pytest.mark.parametrize(
    ("rejection", "verbs"),
    [
        pytest.param(Refuse(403), WRITES, id="a webhook denies every write"),
        pytest.param(Refuse(409), WRITES, id="every write conflicts"),
        pytest.param(Refuse(401), WRITES, id="the credentials are not accepted"),
        pytest.param(Refuse(403, NO_RIGHT), (Verb.BIND,), id="the right to bind is missing"),
        pytest.param(Refuse(422), (Verb.BIND,), id="a webhook denies Bindings"),
        pytest.param(Refuse(422), OF_VOLUMES, id="a webhook denies writes of volumes"),
        pytest.param(Fail(500), OF_VOLUMES, id="the webhook of volumes is down"),
        pytest.param(Refuse(422), OF_STATUS, id="a webhook denies writes of the status"),
        pytest.param(Refuse(403), (Verb.DELETE_POD,), id="a webhook denies deletions"),
        pytest.param(Refuse(404), OF_EVENTS, id="a webhook denies Events"),
    ],
)
@in_virtual_time
async def test_a_pod_costs_at_most_one_write_a_minute(rejection: RequestFault, verbs: tuple[Verb, ...]) -> None:
    of = full_nodes_and_a_free_one(PODS)
    async with scheduling(of, latency_s=0.002) as process:
        process.wire.faults = counted = Counted()
        for verb in verbs:
            counted.add(verb, rejection)
        for number in range(PODS):
            come(of, number)
        await asyncio.sleep(AT_REST_S)
        counted.since_s = now_s()
        await asyncio.sleep(COUNTED_S)

    assert counted.writes
    assert max(counted.per_minute().values()) <= 1, dict(counted.writes)
