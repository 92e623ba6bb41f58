"""PodDisruptionBudgets: whom a preemption should rather spare.

Source: kube-scheduler 1.36, plugins/defaultpreemption/default_preemption.go, filterPodsWithPDBViolation.
"""

from collections.abc import Iterable
from typing import Final

import msgspec

from scheduler.kube import objects
from scheduler.state.columns.selectors import Expressions, match, of_label_selector
from scheduler.state.pod_record import PodRecord

# Of one namespace: each of its pods is held against each of them.
MOST_BUDGETS: Final = 64
# Of all their selectors together: 128 pods of a node that match them all take 5 ms. Mostly a selector has one or two.
MOST_REQUIREMENTS: Final = 256


class _Budget(msgspec.Struct, frozen=True):
    name: str
    selector: Expressions
    allowed: int
    counted: frozenset[str]


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
        own = self._budgets.get(meta.namespace, {})
        others = sum(len(other.selector) for other in own.values() if other.name != meta.name)
        if selector is not None and others + len(selector) > MOST_REQUIREMENTS:
            problem = (
                f"its selector has {len(selector)} requirements, and others of its namespace have {others} "
                f"(at most {MOST_REQUIREMENTS} are read)"
            )
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
        own[meta.name] = _Budget(meta.name, selector, status.disruptions_allowed, counted)
        return ""

    def remove(self, namespace: str, name: str) -> None:
        """One is gone."""
        self.version += 1
        own = self._budgets.get(namespace, {})
        if own.pop(name, None) is not None and not own:
            del self._budgets[namespace]

    def split(self, records: Iterable[PodRecord]) -> tuple[list[PodRecord], list[PodRecord]]:
        """(those that may not go if all of them go, the others), each in order. records: the first are spared last."""
        left: dict[tuple[str, str], int] = {}
        violating: list[PodRecord] = []
        others: list[PodRecord] = []
        for record in records:
            within = True
            for budget in self._of(record):
                key = (record.pod.key.namespace, budget.name)
                left[key] = left.get(key, budget.allowed) - 1
                within &= left[key] >= 0
            (others if within else violating).append(record)
        return violating, others

    def _of(self, record: PodRecord) -> Iterable[_Budget]:
        pod = record.pod
        own = self._budgets.get(pod.key.namespace)
        if own is None or not pod.labels:
            return ()
        return [b for b in own.values() if pod.key.name not in b.counted and match(b.selector, pod.labels)]
