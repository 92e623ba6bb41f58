"""With which pods a pod is spread when it says nothing: held against a plain reading of kube-scheduler's rule."""

from typing import Final

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from scheduler.state.columns.selectors import Expression, Expressions, Operator, equalities
from scheduler.state.default_selectors import DefaultSelectors

WEB: Final = {"app": "web"}
SELECTED: Final = st.dictionaries(st.sampled_from(["app", "tier"]), st.sampled_from(["web", "db"]), max_size=2)
NAMES: Final = st.sampled_from(["one", "two", "three"])
NAMESPACES: Final = st.sampled_from(["default", "other"])
NOT_OLD: Final = (Expression("age", Operator.NOT_IN, frozenset({"old"})),)


def selectors() -> DefaultSelectors:
    made = DefaultSelectors()
    made.set_service("default", "service", equalities(WEB))
    made.set_controller("controller", NOT_OLD)
    return made


def test_what_both_ask_is_asked_once() -> None:
    made = selectors()
    made.set_controller("controller", equalities(WEB))
    assert made.of("default", WEB, "controller") == equalities(WEB)


def test_only_another_selector_is_news() -> None:
    made = selectors()
    assert not made.set_service("default", "service", equalities(WEB))
    assert not made.set_controller("controller", NOT_OLD)
    assert not made.set_service("default", "nobody", ())
    assert not made.set_controller("nobody", ())
    assert made.set_service("default", "service", ())
    assert made.set_controller("controller", ())
    assert made.of("default", WEB, "controller") == ()


class Histories(RuleBasedStateMachine):
    """Services come, change and go."""

    def __init__(self) -> None:
        super().__init__()
        self.made = DefaultSelectors()
        self.services: dict[tuple[str, str], dict[str, str]] = {}

    @rule(namespace=NAMESPACES, name=NAMES, selected=SELECTED)
    def service_is(self, namespace: str, name: str, selected: dict[str, str]) -> None:
        changed = self.services.get((namespace, name), {}) != selected
        self.services[namespace, name] = selected
        assert self.made.set_service(namespace, f"{namespace}/{name}", equalities(selected)) is changed

    @invariant()
    def each_pod_is_spread_with_what_its_services_select(self) -> None:
        for namespace in ("default", "other"):
            for labels in ({"app": "web"}, {"app": "web", "tier": "db"}, {"tier": "web"}, {}):
                assert self.made.of(namespace, labels, "") == self._expected(namespace, labels)

    def _expected(self, namespace: str, labels: dict[str, str]) -> Expressions:
        merged: dict[str, str] = {}
        for (where, _), selected in self.services.items():
            if where == namespace and selected.items() <= labels.items():
                merged |= selected
        return equalities(merged)


TestHistories = Histories.TestCase
TestHistories.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
