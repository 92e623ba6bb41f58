"""CardAffinity: which company a card has, and who may join it."""

from typing import Any

import pytest
from msgspec.structs import replace

from config.protocol import names
from scheduler.core.engine import Engine
from scheduler.plugins.card.card_affinity import APART, TOGETHER, CardHolders
from tests.support.builders import bound, engine, pod, wire_node
from tests.support.placing import on_card, place, settle, where, why

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
        pytest.param("", "'' is no requirement on a label", id="empty"),
        pytest.param("app=web=x", "'app=web=x' is no requirement", id="two equals"),
        pytest.param("app in web", "'app in web' is no requirement", id="no brackets"),
        pytest.param("app in (", "'app in (' is no requirement", id="half a bracket"),
        pytest.param(f"app={'x' * 64}", "has a value that no label can have", id="a long value"),
        pytest.param("app=web,", "'' is no requirement", id="a comma too many"),
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


class Counted(dict[str, str]):
    """Labels that count how often they are looked at."""

    looks = 0

    def get(self, key: str, default: Any = None, /) -> Any:  # noqa: ANN401 - as dict
        Counted.looks += 1
        return super().get(key, default)


def test_pods_with_the_same_labels_are_asked_about_once() -> None:
    built = engine(a=[160])
    for number in range(100):
        there = replace(pod(f"there-{number}", 1), labels=Counted(WEB))
        built.pod_assigned(bound(there, "a", on_card(0, 1)))
    built.tables.fact(CardHolders)
    Counted.looks = 0
    assert APART in why(place(built, "p", 1, **apart("app=web,!tier")))
    # Two keys, looked up by the matcher and once more by the one match: for all of the pods together.
    assert Counted.looks < 10
