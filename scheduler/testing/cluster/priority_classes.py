"""PriorityClasses, as an administrator makes them."""

from scheduler.kube.defaults import Identity
from scheduler.kube.objects import ObjectMeta, PriorityClass
from scheduler.testing.cluster.store import Collection


class PriorityClasses:
    """Verbs on one collection. Nothing here gives a pod its priority: manifests say it themselves."""

    def __init__(self, collection: Collection[PriorityClass], identity: Identity) -> None:
        self.collection = collection
        self._identity = identity

    def create(
        self, name: str, value: int, *, global_default: bool = False, preemption_policy: str = ""
    ) -> PriorityClass:
        """Make one; raises ApiConflict."""
        made = PriorityClass(self._identity.given_to(ObjectMeta(name)), value, global_default, preemption_policy)
        return self.collection.create(made)
