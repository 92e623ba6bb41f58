"""PodDisruptionBudgets: the pods that preemption should spare if it can.

Source: kube-scheduler 1.36, plugins/defaultpreemption/default_preemption.go, filterPodsWithPDBViolation.
"""

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec
from cachetools import LRUCache

from scheduler.kube import objects
from scheduler.pods.pod import Pod
from scheduler.state.columns.selectors import Expressions, match, of_label_selector
from scheduler.state.pod_record import PodRecord

# Per namespace: each pod is compared with each budget of its namespace.
MOST_BUDGETS: Final = 64
# Over all selectors of a namespace: comparing 128 pods of a node that match all of them takes 5 ms. A selector usually
# has one or two.
MOST_REQUIREMENTS: Final = 256
# Per selector: all values are kept.
MOST_VALUES: Final = 1024
# For the cached budgets of pods: enough for some ten thousand pods.
_KEPT_BYTES: Final = 4_000_000


class _Budget(msgspec.Struct, frozen=True):
    """One budget. counted: names of pods whose eviction its status already counts. going: our victims since then."""

    name: str
    selector: Expressions
    allowed: int
    counted: frozenset[str]
    going: set[str]


class _LeftOut:
    """Budgets that are not read yet because others of their namespace have reached a limit, in order of arrival.

    Stored as bytes, because a namespace may have thousands of them. Grouped by the length of the selector: the shortest
    is read first, and if it does not fit, no other one does.
    """

    def __init__(self) -> None:
        self._of_length: dict[int, dict[str, bytes]] = {}
        self._length: dict[str, int] = {}

    def put(self, name: str, length: int, budget: objects.PodDisruptionBudget) -> None:
        if self._length.get(name) != length:
            self.discard(name)
        self._length[name] = length
        self._of_length.setdefault(length, {})[name] = msgspec.json.encode(budget)

    def discard(self, name: str) -> None:
        if (length := self._length.pop(name, None)) is not None:
            alike = self._of_length[length]
            del alike[name]
            if not alike:
                del self._of_length[length]

    def first(self, most: int) -> objects.PodDisruptionBudget | None:
        """The first budget whose selector has at most `most` requirements; None if there is none."""
        length = min(self._of_length, default=most + 1)
        if length > most:
            return None
        return msgspec.json.decode(next(iter(self._of_length[length].values())), type=objects.PodDisruptionBudget)

    def __bool__(self) -> bool:
        return bool(self._length)


class _Budgets(msgspec.Struct):
    """Budgets of one namespace. selectors: version of the last change of a selector. left_out: budgets not read yet."""

    by_name: dict[str, _Budget] = msgspec.field(default_factory=dict)
    selectors: int = 0
    left_out: _LeftOut = msgspec.field(default_factory=_LeftOut)

    def room(self, besides: str = "") -> int:
        """Maximum number of requirements that one more budget may have; -1 if no more budgets can be read.

        besides: name of a budget to leave out of the count, because it will be replaced.
        """
        others = [len(one.selector) for one in self.by_name.values() if one.name != besides]
        return MOST_REQUIREMENTS - sum(others) if len(others) < MOST_BUDGETS else -1


class _Matching(msgspec.Struct, frozen=True):
    """Names of the budgets that match a pod with these labels."""

    labels: Mapping[str, str]
    selectors: int
    names: tuple[str, ...]


def _size(kept: _Matching) -> int:
    """Size in bytes, including its cache entry; labels and names belong to other objects."""
    return 320 + 8 * len(kept.names)


class DisruptionBudgets:
    """Budgets that protect a pod, by namespace. Owned by the event loop.

    listed: whether all budgets are known. version: changes when a budget does.
    """

    def __init__(self) -> None:
        self.listed = False
        self.version = 0
        self._budgets: dict[str, _Budgets] = {}
        self._matching: LRUCache[str, _Matching] = LRUCache(_KEPT_BYTES, getsizeof=_size)

    def set(self, budget: objects.PodDisruptionBudget) -> str:
        """Add or replace a budget. Returns why it protects no pod although it selects some, or "".

        A budget that does not fit is read as soon as others of its namespace have freed enough capacity.
        """
        meta = budget.metadata
        selector = of_label_selector(budget.spec.selector)
        problem = "" if selector is None else _too_long(selector)
        if selector is None or problem:
            self.remove(meta.namespace, meta.name)
            return problem
        own = self._budgets.setdefault(meta.namespace, _Budgets())
        if problem := _without_room(own, meta.name, selector):
            self._take_out(own, meta.name)
            own.left_out.put(meta.name, len(selector), budget)
        else:
            own.left_out.discard(meta.name)
            self._take_in(own, budget, selector)
        self._read_left_out(meta.namespace)
        return problem

    def remove(self, namespace: str, name: str) -> None:
        own = self._budgets.get(namespace)
        if own is None:
            return
        own.left_out.discard(name)
        self._take_out(own, name)
        self._read_left_out(namespace)

    def _take_in(self, own: _Budgets, budget: objects.PodDisruptionBudget, selector: Expressions) -> None:
        self.version += 1
        name = budget.metadata.name
        known = own.by_name.get(name)
        if known is None or known.selector != selector:
            own.selectors = self.version
        counted = frozenset(budget.status.disrupted_pods or ())
        own.by_name[name] = _Budget(name, selector, budget.status.disruptions_allowed, counted, set())

    def _take_out(self, own: _Budgets, name: str) -> None:
        if own.by_name.pop(name, None) is not None:
            self.version += 1
            own.selectors = self.version

    def _read_left_out(self, namespace: str) -> None:
        own = self._budgets[namespace]
        while own.left_out and (found := own.left_out.first(own.room())) is not None:
            own.left_out.discard(found.metadata.name)
            self._take_in(own, found, of_label_selector(found.spec.selector) or ())
        if not own.by_name and not own.left_out:
            del self._budgets[namespace]

    def split(
        self, records: Iterable[PodRecord], *, with_refused: bool = True
    ) -> tuple[list[PodRecord], list[PodRecord]]:
        """Return (pods whose eviction would violate a budget, the others), both in the order of `records`.

        The first pods of `records` use up what the budgets allow. with_refused: pods whose eviction the API server has
        rejected also go into the first list, because another attempt would probably fail too.
        """
        left: dict[tuple[str, str], int] = {}
        violating: list[PodRecord] = []
        others: list[PodRecord] = []
        for record in records:
            within = not (with_refused and record.undeletable)
            for budget in self._of(record.pod):
                key = (record.pod.key.namespace, budget.name)
                left[key] = left.get(key, budget.allowed - len(budget.going)) - 1
                within &= left[key] >= 0
            (others if within else violating).append(record)
        return violating, others

    def let_go(self, records: Iterable[PodRecord]) -> bool:
        """Whether the API server would evict all of the pods, one at a time.

        The API server never evicts a pod that several budgets match. For evictions, an empty selector selects all pods.
        Source: kube-apiserver 1.36, registry/core/pod/storage/eviction.go, Create and getPodDisruptionBudgets.
        """
        left: dict[tuple[str, str], int] = {}
        for record in records:
            budgets = self._selecting(record.pod)
            if record.undeletable or len(budgets) > 1:
                return False
            for budget in budgets:
                key = (record.pod.key.namespace, budget.name)
                left[key] = left.get(key, budget.allowed - len(budget.going)) - 1
                if left[key] < 0 and record.pod.key.name not in budget.counted:
                    return False
        return True

    def spend(self, victims: Iterable[Pod]) -> None:
        """Record victims that will be evicted. Their budgets allow fewer evictions until the next status update."""
        for pod in victims:
            for budget in () if pod.terminating else self._of(pod):
                budget.going.add(pod.key.name)
                self.version += 1

    def spare(self, pods: Iterable[Pod]) -> None:
        """Record victims that will not be evicted after all."""
        for pod in pods:
            for budget in self._budgets.get(pod.key.namespace, _Budgets()).by_name.values():
                if pod.key.name in budget.going:
                    budget.going.remove(pod.key.name)
                    self.version += 1

    def _of(self, pod: Pod) -> Iterable[_Budget]:
        """Budgets that protect the pod from preemption.

        In 1.36, an empty selector matches nothing, and no selector matches a pod without labels.
        """
        if not pod.labels or pod.key.namespace not in self._budgets:
            return ()
        name = pod.key.name
        return [
            budget
            for budget in self._selecting(pod)
            if budget.selector and not (name in budget.counted or name in budget.going)
        ]

    def _selecting(self, pod: Pod) -> list[_Budget]:
        """Budgets whose selector matches the pod."""
        own = self._budgets.get(pod.key.namespace)
        if own is None:
            return []
        kept = self._matching.get(pod.key.uid)
        if kept is None or kept.labels is not pod.labels or kept.selectors != own.selectors:
            found = tuple(b.name for b in own.by_name.values() if match(b.selector, pod.labels))
            kept = self._matching[pod.key.uid] = _Matching(pod.labels, own.selectors, found)
        return [own.by_name[name] for name in kept.names]


def _too_long(selector: Expressions) -> str:
    """Reason why a budget with this selector is never read; "" if it can be."""
    values = sum(len(expression.values) for expression in selector)
    if len(selector) > MOST_REQUIREMENTS:
        return f"its selector has {len(selector)} requirements (at most {MOST_REQUIREMENTS} are read)"
    return f"its selector has {values} values (at most {MOST_VALUES} are read)" if values > MOST_VALUES else ""


def _without_room(own: _Budgets, name: str, selector: Expressions) -> str:
    """Reason why a budget cannot be read now, besides those already read; "" if it can be."""
    room = own.room(name)
    if room < 0:
        return f"its namespace has more than {MOST_BUDGETS} PodDisruptionBudgets (at most {MOST_BUDGETS} are read)"
    if len(selector) <= room:
        return ""
    return (
        f"its selector has {len(selector)} requirements, and the budgets already read in its namespace have "
        f"{MOST_REQUIREMENTS - room} (at most {MOST_REQUIREMENTS} are read in total)"
    )
