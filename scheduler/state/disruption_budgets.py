"""PodDisruptionBudgets: whom a preemption should rather spare.

Source: kube-scheduler 1.36, plugins/defaultpreemption/default_preemption.go, filterPodsWithPDBViolation.
"""

from collections.abc import Iterable
from typing import Final

import msgspec

from scheduler.kube import objects
from scheduler.pods.pod import Pod
from scheduler.state.columns.selectors import Expressions, match, of_label_selector
from scheduler.state.pod_record import PodRecord

# Of one namespace, the first by name: each of its pods is held against each of them.
MOST_BUDGETS: Final = 64
# Of one selector.
MOST_REQUIREMENTS: Final = 64


class _Budget(msgspec.Struct, frozen=True):
    """counted, going: names of pods whose end its status counts already, and of those that we remove meanwhile."""

    name: str
    selector: Expressions
    allowed: int
    counted: frozenset[str]
    going: set[str]


class DisruptionBudgets:
    """Those that protect somebody, by namespace. Owned by the event loop.

    listed: whether all are known. version: moves when one changes.
    """

    def __init__(self) -> None:
        """None."""
        self.listed = False
        self.version = 0
        self._budgets: dict[str, dict[str, _Budget]] = {}

    def set(self, budget: objects.PodDisruptionBudget) -> str:
        """Add or replace one. Returns why it protects nobody although it selects somebody, or ""."""
        meta, problem = budget.metadata, ""
        self.version += 1
        selector = of_label_selector(budget.spec.selector)
        if selector is not None and len(selector) > MOST_REQUIREMENTS:
            problem = f"its selector has {len(selector)} requirements (at most {MOST_REQUIREMENTS} are read)"
            selector = None
        if not selector:
            # In 1.36 an empty selector matches nothing, as an absent one does.
            self.remove(meta.namespace, meta.name)
            return problem
        own = self._budgets.setdefault(meta.namespace, {})
        if meta.name not in own and len(own) >= MOST_BUDGETS:
            return f"its namespace has more than the {MOST_BUDGETS} PodDisruptionBudgets that are read"
        status = budget.status
        counted = frozenset(status.disrupted_pods or ())
        own[meta.name] = _Budget(meta.name, selector, status.disruptions_allowed, counted, set())
        return ""

    def remove(self, namespace: str, name: str) -> None:
        """One is gone."""
        self.version += 1
        own = self._budgets.get(namespace, {})
        if own.pop(name, None) is not None and not own:
            del self._budgets[namespace]

    def split(self, records: Iterable[PodRecord]) -> tuple[list[PodRecord], list[PodRecord]]:
        """(those that may not go if all of them go, the others), each in order. records: the first are spared last.

        What the API server has refused to remove it will hardly remove now.
        """
        left: dict[tuple[str, str], int] = {}
        violating: list[PodRecord] = []
        others: list[PodRecord] = []
        for record in records:
            within = not record.refused
            for budget in self._of(record.pod):
                key = (record.pod.key.namespace, budget.name)
                left[key] = left.get(key, budget.allowed - len(budget.going)) - 1
                within &= left[key] >= 0
            (others if within else violating).append(record)
        return violating, others

    def spend(self, victims: Iterable[Pod]) -> None:
        """These are about to be removed. What a budget allows is that much less, until its status is next written."""
        for pod in victims:
            for budget in () if pod.terminating else self._of(pod):
                budget.going.add(pod.key.name)
                self.version += 1

    def spare(self, pods: Iterable[Pod]) -> None:
        """These stay after all."""
        for pod in pods:
            for budget in self._budgets.get(pod.key.namespace, {}).values():
                if pod.key.name in budget.going:
                    budget.going.remove(pod.key.name)
                    self.version += 1

    def _of(self, pod: Pod) -> Iterable[_Budget]:
        own = self._budgets.get(pod.key.namespace)
        if own is None or not pod.labels:
            return ()
        name = pod.key.name
        return [b for b in own.values() if not (name in b.counted or name in b.going) and match(b.selector, pod.labels)]
