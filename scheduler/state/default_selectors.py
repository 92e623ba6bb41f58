"""Default spreading: a pod without constraints is spread with the pods of its Services and controller.

Source: kube-scheduler, plugins/helper/spread.go, DefaultSelector.
"""

from collections.abc import Mapping
from typing import Final

from scheduler.state.columns.selectors import Expression, Expressions
from scheduler.state.facts.label_index import LabelIndex

# Per selector, including all of its values. An object over the limit counts as one without a selector.
MOST_TERMS: Final = 256


class DefaultSelectors:
    """Selectors of Services, found by the labels of a pod, and of controllers, found by their uid."""

    def __init__(self) -> None:
        self._of_controller: dict[str, Expressions] = {}
        self._services: dict[str, _Services] = {}

    def set_controller(self, uid: str, selector: Expressions) -> bool:
        """Set a controller's selector; () if it is deleted or selects nothing. Returns whether the selector changed."""
        if self._of_controller.get(uid, ()) == selector:
            return False
        if selector:
            self._of_controller[uid] = selector
        else:
            del self._of_controller[uid]
        return True

    def set_service(self, namespace: str, uid: str, selector: Expressions) -> bool:
        """Set a Service's selector. Returns whether the selector changed."""
        services = self._services.setdefault(namespace, _Services())
        changed = services.set(uid, selector)
        if not services.slot_of:
            del self._services[namespace]
        return changed

    def of(self, namespace: str, labels: Mapping[str, str], controller_uid: str) -> Expressions:
        """Selector of the pods that default spreading counts for a pod like this; () for none.

        controller_uid: "" if it has no controller.
        """
        services = self._services.get(namespace)
        found = () if services is None else services.matching(labels)
        of_controller = self._of_controller.get(controller_uid)
        if of_controller is None:
            return found
        return (*found, *(expression for expression in of_controller if expression not in found))


class _Services:
    """Services of one namespace. slot_of: UID of a Service -> its slot."""

    def __init__(self) -> None:
        self.slot_of: dict[str, int] = {}
        self._selectors: dict[int, Expressions] = {}
        self._free: list[int] = []
        self._index = LabelIndex()

    def set(self, uid: str, selector: Expressions) -> bool:
        slot = self.slot_of.get(uid)
        if selector == (() if slot is None else self._selectors[slot]):
            return False
        if slot is not None:
            self._index.discard(slot, self._selectors.pop(slot))
            self._free.append(slot)
            del self.slot_of[uid]
        if selector:
            slot = self.slot_of[uid] = self._free.pop() if self._free else len(self._selectors)
            self._selectors[slot] = selector
            self._index.add(slot, selector)
        return True

    def matching(self, labels: Mapping[str, str]) -> Expressions:
        """Distinct requirements of the Services that select a pod, in a fixed order. All are labels of the pod."""
        asked: dict[str, Expression] = {}
        for slot in self._index.matches(labels).tolist():
            asked.update((expression.key, expression) for expression in self._selectors[slot])
        return tuple(asked[key] for key in sorted(asked))


def size_of(selector: Expressions) -> int:
    """Size that is compared with MOST_TERMS."""
    return sum(1 + len(expression.values) for expression in selector)
