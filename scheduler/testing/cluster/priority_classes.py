"""PriorityClasses, as an administrator makes them."""

from scheduler.kube.defaults import Identity
from scheduler.kube.objects import ObjectMeta, PriorityClass
from scheduler.testing.cluster.store import Collection


class PriorityClasses:
    """Operations on one collection. Pods get no priority here: manifests have it."""

    def __init__(self, collection: Collection[PriorityClass], identity: Identity) -> None:
        self.collection = collection
        self._identity = identity

    def create(
        self, name: str, value: int, *, global_default: bool = False, preemption_policy: str = ""
    ) -> PriorityClass:
        """Make one; raises ApiConflict."""
        made = PriorityClass(self._identity.given_to(ObjectMeta(name)), value, global_default, preemption_policy)
        return self.collection.create(made)
