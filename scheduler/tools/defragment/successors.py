"""The pods of one owner while one of them is evicted: which of them is its successor.

A successor is made because the pod goes, so it did not exist while the pod was still running. The changes of a watch
come in order; those of a list do not, so of a list without the running pod nothing is concluded.
"""

from collections.abc import Collection, Sequence

from scheduler.kube import objects
from scheduler.kube.port import Changed, Deleted, ListBegins, ListEnds, WatchEvent


class Successors:
    """Takes the events of a watch of pods, begun before the pod is evicted.

    listed: whether all pods that exist are known.
    """

    def __init__(self, uid: str, owner: str, earlier: Collection[str]) -> None:
        """uid: of the pod that is evicted. owner: its uid. earlier: uids of pods that are not successors."""
        self.listed = False
        self._uid = uid
        self._owner = owner
        self._earlier = set(earlier)
        self._pods: dict[str, objects.PodObject] = {}

    def take(self, batch: Sequence[WatchEvent[objects.PodObject]]) -> None:
        """The next events, in order."""
        for event in batch:
            match event:
                case Changed(pod) if any(owner.uid == self._owner for owner in pod.metadata.owner_references):
                    self._pods[pod.metadata.uid] = pod
                case Deleted(pod):
                    self._pods.pop(pod.metadata.uid, None)
                case ListBegins():
                    self._pods, self.listed = {}, False
                case ListEnds():
                    self.listed = True
                case _:
                    continue
            if self.listed and self._is_running():
                self._earlier.update(self._pods)

    def bound(self) -> tuple[str, str] | None:
        """(uid, node) of the successor, once it is bound and the pod itself is deleted."""
        if not self.listed or self._uid in self._pods:
            return None
        found = (pod for uid, pod in self._pods.items() if uid not in self._earlier and pod.spec.node_name)
        return next(((pod.metadata.uid, pod.spec.node_name) for pod in found), None)

    def waiting(self) -> list[str]:
        """The names of the owner's pods that have no node, sorted."""
        return sorted(pod.metadata.name for pod in self._pods.values() if not pod.spec.node_name)

    def _is_running(self) -> bool:
        pod = self._pods.get(self._uid)
        return pod is not None and not pod.metadata.deletion_timestamp
