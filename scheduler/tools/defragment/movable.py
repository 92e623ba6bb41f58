"""Pods that may be moved: their controllers recreate them elsewhere, and nothing protects them. Pure."""

from collections.abc import Collection, Iterable, Mapping
from typing import Final

from msgspec.structs import replace

from config.protocol import names
from scheduler.core.engine import Engine
from scheduler.kube.objects import OwnerReference
from scheduler.kube.port import PodKey
from scheduler.pods.pod import Pod
from scheduler.state.pod_record import PodRecord

# A DaemonSet's pod comes back to the same node. A mirror pod's owner is its node.
_STAY: Final = frozenset({"DaemonSet", "Node"})


class Movable:
    """Movable pods of one engine, from its current tables."""

    def __init__(
        self, engine: Engine, owners: Mapping[str, OwnerReference], max_priority: int, stay: Collection[str] = ()
    ) -> None:
        """owners: by uid, the controller of each pod that has one. max_priority: of a moved pod.

        stay: uids of pods not to move, because they were just moved.
        """
        self._engine = engine
        self._owners = owners
        self._max_priority = max_priority
        self._stay = frozenset(stay)
        self._on: dict[str, list[PodRecord]] = {}
        for record in engine.tables.records():
            if self._may_be_moved(record):
                self._on.setdefault(record.node, []).append(record)

    @property
    def nodes(self) -> Mapping[str, Collection[PodRecord]]:
        """By node, if it has any."""
        return self._on

    def on(self, node: str) -> list[PodRecord]:
        """Movable pods of one node."""
        return [record for record in self._on.get(node, ()) if not record.lifted]

    def together(self, records: Iterable[PodRecord]) -> bool:
        """Whether disruption budgets allow evicting all of them, one at a time."""
        return self._engine.tables.budgets.let_go(records)

    def owner(self, record: PodRecord) -> OwnerReference:
        """The controller of a pod that may be moved."""
        return self._owners[record.pod.key.uid]

    def _may_be_moved(self, record: PodRecord) -> bool:
        pod, owner = record.pod, self._owners.get(record.pod.key.uid)
        return (
            owner is not None
            and owner.kind not in _STAY
            and pod.scheduler_name in self._engine.scheduler_names
            and pod.priority <= self._max_priority
            and pod.key.uid not in self._stay
            and not (pod.terminating or pod.mirror or record.assumed or record.undeletable)
            and record.node in self._engine.tables.row_of
            and self.together((record,))
        )


def successor(pod: Pod) -> Pod:
    """The controller's replacement for an evicted pod: the same, without a node."""
    key = PodKey(pod.key.namespace, pod.key.name, f"{pod.key.uid}-successor")
    annotations = {name: text for name, text in pod.annotations.items() if name not in names.ALLOCATION_KEYS}
    return replace(pod, key=key, annotations=annotations, node_name="", phase="Pending", started="", nominated_node="")
