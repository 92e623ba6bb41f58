"""The limit on nominations is reached while a search is under way."""

from msgspec.structs import replace

from scheduler.core.effects import Evict
from scheduler.core.engine import Engine
from scheduler.state.nominations import MOST_OF_A_NAMESPACE
from tests.support.builders import bound, engine, pod
from tests.support.placing import NOW_NS, on_card

NODES = 400


def until_idle(built: Engine) -> list[Evict]:
    found: list[Evict] = []
    while (step := built.step(0.0, NOW_NS)) is not None:
        found += [one for one in step.effects if isinstance(one, Evict)]
    return found


def test_a_pod_whose_search_ends_when_the_limit_is_reached_is_searched_for_later() -> None:
    built = engine(**{f"n{number}": [16] for number in range(NODES)})
    built.budgets_listed()
    for number in range(NODES):
        built.pod_assigned(bound(pod(f"low-{number}", 16, priority=1), f"n{number}", on_card(0, 16)))
    until_idle(built)
    built.pod_waiting(pod("urgent", 16, priority=5), 0.0)
    while not built.searches._search:  # noqa: SLF001 - between two steps of it
        assert built.step(0.0, NOW_NS) is not None
    others = [
        replace(pod(f"other-{n}", 16, priority=5, scheduler="other"), nominated_node=f"n{n}")
        for n in range(MOST_OF_A_NAMESPACE)
    ]
    for other in others:
        built.pod_of_others(other)
    assert until_idle(built) == []
    for other in others:
        built.pod_gone(other.key.uid)

    until_idle(built)
    assert built.nominations.of("uid-default-urgent") is not None
