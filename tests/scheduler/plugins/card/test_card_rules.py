"""Rules about one card: CardAffinity (its company), GpuCore (its compute) and GpuSharersPerCard (how many share it)."""

import pytest
from msgspec.structs import replace

from config.protocol import names
from config.settings.scheduler import configuration_model
from scheduler.core.build import build_engine
from scheduler.core.engine import Engine
from scheduler.plugins.card.card_affinity import APART, TOGETHER
from scheduler.plugins.card.gpu_core import percent_per_card
from scheduler.plugins.card.gpu_sharers_per_card import REASON
from scheduler.plugins.registry import describe
from tests.support.builders import bound, engine, pod, wire_node
from tests.support.placing import on_card, place, settle, where, why

# CardAffinity

WEB = {"app": "web"}


def apart(selector: str, **options: object) -> dict[str, object]:
    return {"annotations": {names.CARD_ANTI_AFFINITY: selector}, **options}


def together(selector: str, **options: object) -> dict[str, object]:
    return {"annotations": {names.CARD_AFFINITY: selector}, **options}


def inhabited(labels: dict[str, str] | None = None, *, namespace: str = "default") -> Engine:
    """A node of two cards of 16 units, a pod with these labels on the second."""
    built = engine(a=[16, 16])
    there = pod("there", 2, labels=WEB if labels is None else labels, namespace=namespace)
    built.pod_assigned(bound(there, "a", on_card(1, 2)))
    return built


@pytest.mark.parametrize(
    ("selector", "matches"),
    [
        pytest.param("app=web", True, id="equal"),
        pytest.param("app==web", True, id="equal, written twice"),
        pytest.param("app=db", False, id="another value"),
        pytest.param("app!=db", True, id="not equal"),
        pytest.param("app in (db, web)", True, id="in"),
        pytest.param("app notin (web)", False, id="notin"),
        pytest.param("app", True, id="exists"),
        pytest.param("!app", False, id="does not exist"),
        pytest.param("app=web,tier", False, id="all of them"),
        pytest.param(" app = web , !tier ", True, id="blanks"),
    ],
)
def test_a_selector_is_read_as_kubectl_reads_it(selector: str, matches: bool) -> None:  # noqa: FBT001 - a case of the table
    assert where(place(inhabited(), "p", 1, **together("app=web"))) == [("a", 1)]
    built = inhabited()
    # Binpack alone would take the card in use.
    assert where(place(built, "p", 1, **apart(selector))) == [("a", 0 if matches else 1)]


def test_pods_of_other_namespaces_do_not_count() -> None:
    built = inhabited(namespace="other")
    assert TOGETHER in why(place(built, "p", 1, **together("app=web")))
    assert where(place(built, "q", 1, **apart("app=web"))) == [("a", 1)]


def test_copies_that_keep_away_from_each_other_get_a_card_each() -> None:
    built = engine(a=[16, 16], b=[16])
    options = apart("app=web", labels=WEB)
    placed = [where(place(built, f"p{number}", 1, **options))[0] for number in range(3)]
    assert sorted(placed) == [("a", 0), ("a", 1), ("b", 0)]
    assert why(place(built, "fourth", 1, **options)) == f"0/2 nodes are available: 2 {APART}."


def test_a_freed_card_wakes_one_of_the_copies() -> None:
    built = engine(a=[16])
    options = apart("app=web", labels=WEB)
    for number in range(4):
        place(built, f"p{number}", 1, **options)
    built.pod_gone("uid-default-p0")
    assert settle(built) == ["p1"]


def test_company_that_comes_wakes_the_pod_that_waits_for_it() -> None:
    built = engine(a=[16, 16])
    assert why(place(built, "waits", 1, **together("app=web"))) == f"0/1 nodes are available: 1 {TOGETHER}."
    built.pod_assigned(bound(pod("db", 1, labels={"app": "db"}), "a", on_card(0, 1)))
    assert settle(built) == []
    built.pod_assigned(bound(pod("web", 1, labels=WEB), "a", on_card(1, 1)))
    assert settle(built) == ["waits"]


def test_company_that_comes_wakes_nobody_who_does_not_want_it() -> None:
    built = engine(a=[16])
    place(built, "first", 13)
    place(built, "waits", 4)
    place(built, "seeks", 1, **together("app=web"))
    built.pod_assigned(bound(pod("web", 1, labels=WEB), "a", on_card(0, 1)))
    asked = 0
    while built.run_hint(1.0):
        asked += 1
    assert asked == 1
    assert settle(built) == ["seeks"]


def test_a_pod_there_whose_labels_change_counts_by_the_new_ones() -> None:
    built = inhabited()
    assert where(place(built, "first", 1, **together("app=web"))) == [("a", 1)]
    assert TOGETHER in why(place(built, "waits", 1, **together("app=db")))
    changed = replace(bound(pod("there", 2, labels=WEB), "a", on_card(1, 2)), labels={"app": "db"})
    built.pod_assigned(changed)
    assert settle(built) == ["waits"]
    assert TOGETHER in why(place(built, "late", 1, **together("app=web")))


def test_company_goes_with_its_node_and_comes_back_with_it() -> None:
    built = inhabited()
    place(built, "first", 1, **together("app=web"))
    built.node_gone("a")
    built.node_changed(wire_node("b", [16]))
    assert TOGETHER in why(place(built, "p", 1, **together("app=web")))
    built.node_changed(wire_node("a", [16, 16]))
    assert settle(built) == ["p"]


@pytest.mark.parametrize(
    ("selector", "message"),
    [
        pytest.param("", "'' is not a requirement on a label", id="empty"),
        pytest.param("app=web=x", "'app=web=x' is not a requirement", id="two equals"),
        pytest.param("app in web", "'app in web' is not a requirement", id="no brackets"),
        pytest.param("app in (", "'app in (' is not a requirement", id="half a bracket"),
        pytest.param(f"app={'x' * 64}", "has an invalid label value", id="a long value"),
        pytest.param("app=web,", "'' is not a requirement", id="a comma too many"),
        pytest.param(",".join(f"k{n}" for n in range(81)), "has 81 requirements; expected at most 16", id="too many"),
    ],
)
@pytest.mark.parametrize("key", [names.CARD_AFFINITY, names.CARD_ANTI_AFFINITY])
def test_a_selector_that_cannot_be_read_is_named(key: str, selector: str, message: str) -> None:
    found = why(place(inhabited(), "p", 1, annotations={key: selector}))
    assert f"{key}: " in found
    assert message in found


def test_a_waiting_pod_whose_selector_changes_is_decided_again() -> None:
    built = inhabited()
    assert TOGETHER in why(place(built, "p", 1, **together("app=db")))
    built.pod_waiting(pod("p", 1, **together("app=web")), 1.0)
    assert settle(built) == ["p"]


# GpuCore

CORE = names.GPU_CORE
SHORT = f"Insufficient {CORE} on one card"


def sharing(**nodes: list[int]) -> Engine:
    """Nodes with cards of so many units, which announce 100 percent for each."""
    built = engine()
    for name, cards in nodes.items():
        built.node_changed(wire_node(name, cards, more={CORE: str(100 * len(cards))}))
    return built


def asking(percent: int, **options: object) -> dict[str, object]:
    return {"requests": {CORE: str(percent)}, **options}


def test_a_card_takes_pods_up_to_a_hundred_percent() -> None:
    built = sharing(a=[16])
    assert [where(place(built, f"p{n}", 1, **asking(40))) for n in range(2)] == [[("a", 0)]] * 2
    assert why(place(built, "third", 1, **asking(40))) == f"0/1 nodes are available: 1 Insufficient {CORE}."
    assert where(place(built, "rest", 1, **asking(20))) == [("a", 0)]


def test_the_card_counts_not_the_node() -> None:
    built = sharing(a=[16, 16])
    for number in range(2):
        place(built, f"p{number}", 16, **asking(60))
    built.pod_gone("uid-default-p0")
    # 140 of 200 percent are free on the node, 40 on the card that has memory.
    built.pod_assigned(bound(pod("memory", 16), "a", on_card(0, 16)))
    built.pod_gone("uid-default-p1")
    built.pod_assigned(bound(pod("core", 1, **asking(60)), "a", on_card(1, 1)))
    assert why(place(built, "p", 1, **asking(50))) == f"0/1 nodes are available: 1 {SHORT}."


def test_a_pod_without_a_share_goes_where_no_share_is_left() -> None:
    built = sharing(a=[16])
    place(built, "all", 1, **asking(100))
    assert where(place(built, "none", 1)) == [("a", 0)]


def test_a_node_that_announces_none_takes_none() -> None:
    built = engine(a=[16])
    assert why(place(built, "p", 1, **asking(1))) == f"0/1 nodes are available: 1 Insufficient {CORE}."


@pytest.mark.parametrize(
    ("options", "message"),
    [
        pytest.param(asking(101), f"{CORE}: the pod requests 101 of one card; expected at most 100", id="too much"),
        pytest.param(
            {**asking(10), "gpu_mem": 0},
            f"{CORE}: the pod requests no {names.GPU_MEM}, so it gets no card; request both",
            id="no memory",
        ),
        pytest.param(
            asking(201, annotations={names.GPU_COUNT: "2"}),
            f"{CORE}: the pod requests 101 of one card; expected at most 100",
            id="too much of two",
        ),
    ],
)
def test_a_request_that_no_card_can_meet_is_named(options: dict[str, object], message: str) -> None:
    built = sharing(a=[16, 16])
    assert message in why(place(built, "p", **{"gpu_mem": 2, **options}))  # type: ignore[arg-type]


def test_several_cards_share_the_request_evenly() -> None:
    built = sharing(a=[16, 16])
    waiting = pod("p", 2, **asking(101, annotations={names.GPU_COUNT: "2"}))
    assert percent_per_card(waiting, CORE) == 51
    assert where(place(built, "p", 2, **asking(101, annotations={names.GPU_COUNT: "2"}))) == [("a", 0), ("a", 1)]
    assert where(place(built, "q", 1, **asking(49))) == [("a", 0)]
    assert where(place(built, "r", 1, **asking(49))) == [("a", 1)]


def test_freed_percent_wakes_as_many_as_fit() -> None:
    built = sharing(a=[16])
    place(built, "all", 1, **asking(100))
    for number in range(4):
        place(built, f"waits-{number}", 1, **asking(40))
    built.pod_gone("uid-default-all")
    assert settle(built) == ["waits-0", "waits-1"]


# GpuSharersPerCard


def limited(most: int | None, **nodes: dict[str, str]) -> Engine:
    """Nodes of one card of 16 units each, with these annotations."""
    args = [] if most is None else [{"name": "GpuSharersPerCard", "args": {"maxSharers": most}}]
    said = configuration_model(describe()).model_validate({"profiles": [{"pluginConfig": args}]})
    built, _ = build_engine(said)
    for name, annotations in nodes.items():
        built.node_changed(wire_node(name, [16], annotations=annotations))
    return built


@pytest.mark.parametrize(
    ("argument", "annotation", "fit"),
    [
        pytest.param(None, None, 5, id="no limit"),
        pytest.param(2, None, 2, id="by the argument"),
        pytest.param(None, "3", 3, id="by the node"),
        pytest.param(4, "2", 2, id="the node says less"),
        pytest.param(2, "4", 4, id="the node says more"),
        pytest.param(2, "many", 2, id="what cannot be read counts as left out"),
    ],
)
def test_so_many_pods_share_a_card(argument: int | None, annotation: str | None, fit: int) -> None:
    built = limited(argument, a={} if annotation is None else {names.MAX_SHARERS: annotation})
    outcomes = [place(built, f"p{number}", 3) for number in range(6)]
    assert [where(outcome) for outcome in outcomes[:fit]] == [[("a", 0)]] * fit
    assert REASON in why(outcomes[fit]) or fit == 5


def test_the_message_says_memory_first_and_sharers_where_memory_would_do() -> None:
    built = limited(1, a={}, b={})
    assert where(place(built, "first", 10)) == [("a", 0)]
    assert where(place(built, "second", 3)) == [("b", 0)]
    assert why(place(built, "small", 3)) == f"0/2 nodes are available: 2 {REASON}."
    memory = "Insufficient GPU memory on one card: wants 14, most free 13 (of 16)"
    assert why(place(built, "large", 14)) == f"0/2 nodes are available: 2 {memory}."


def test_a_pod_waits_for_the_annotation_and_is_woken_by_it() -> None:
    built = limited(None, a={names.MAX_SHARERS: "1"})
    place(built, "first", 3)
    assert REASON in why(place(built, "waits", 3))
    built.node_changed(wire_node("a", [16], annotations={names.MAX_SHARERS: "1"}, labels={"news": "1"}))
    assert settle(built) == []
    built.node_changed(wire_node("a", [16], annotations={names.MAX_SHARERS: "2"}))
    assert settle(built) == ["waits"]


def test_as_many_wait_as_the_limit_leaves_out() -> None:
    built = limited(None, a={names.MAX_SHARERS: "1"})
    for number in range(5):
        place(built, f"p{number}", 1)
    built.node_changed(wire_node("a", [16], annotations={names.MAX_SHARERS: "3"}))
    assert len(settle(built)) == 2


def test_a_pod_whose_card_nobody_knows_counts_on_every_card() -> None:
    built = limited(1)
    built.node_changed(wire_node("a", [16, 16]))
    built.pod_assigned(bound(pod("unknown", 1), "a"))
    assert REASON in why(place(built, "p", 1))


def test_the_limit_of_a_node_goes_with_the_node() -> None:
    built = limited(None, a={names.MAX_SHARERS: "1"})
    place(built, "first", 3)
    built.pod_gone("uid-default-first")
    built.node_gone("a")
    built.node_changed(wire_node("b", [16]))
    assert [where(place(built, f"p{number}", 3)) for number in range(3)] == [[("b", 0)]] * 3


def test_a_node_whose_limit_cannot_be_read_says_so() -> None:
    built = engine()
    problem = built.node_changed(wire_node("a", [16], annotations={names.MAX_SHARERS: "0"}))
    assert problem == "gpushare/max-sharers: '0' is not a number of pods; expected 1 to 9999"


def test_two_cards_below_the_limit_are_found_one_by_one() -> None:
    built = limited(1)
    built.node_changed(wire_node("a", [16, 16, 16]))
    built.pod_assigned(bound(pod("there", 2), "a", on_card(1, 2)))
    assert where(place(built, "two", 4, annotations={names.GPU_COUNT: "2"})) == [("a", 0), ("a", 2)]
    assert REASON in why(place(built, "again", 4, annotations={names.GPU_COUNT: "2"}))
