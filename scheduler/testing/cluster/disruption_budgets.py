"""PodDisruptionBudgets, as their users and the controller that counts for them change them."""

from collections.abc import Mapping

from msgspec.structs import replace

from scheduler.kube.defaults import Identity
from scheduler.kube.objects import (
    DisruptionBudgetSpec,
    DisruptionBudgetStatus,
    LabelSelector,
    ObjectMeta,
    PodDisruptionBudget,
)
from scheduler.testing.cluster.namespaces import Namespaces
from scheduler.testing.cluster.store import Collection


class PodDisruptionBudgets:
    """Operations on one collection of budgets. No controller counts here: `allow` sets its result."""

    def __init__(self, collection: Collection[PodDisruptionBudget], identity: Identity, namespaces: Namespaces) -> None:
        self.collection = collection
        self._identity = identity
        self._namespaces = namespaces

    def add(self, budget: PodDisruptionBudget) -> PodDisruptionBudget:
        """One as it is written, and its namespace if that is missing; raises ApiConflict."""
        wanted = replace(budget, metadata=replace(budget.metadata, namespace=budget.metadata.namespace or "default"))
        self._namespaces.ensure(wanted.metadata.namespace)
        return self.collection.create(replace(wanted, metadata=self._identity.given_to(wanted.metadata)))

    def create(self, namespace: str, name: str, labels: Mapping[str, str], allowed: int) -> PodDisruptionBudget:
        """Make one for the pods with these labels, and its namespace if that is missing; raises ApiConflict."""
        self._namespaces.ensure(namespace)
        return self.collection.create(
            PodDisruptionBudget(
                self._identity.given_to(ObjectMeta(name=name, namespace=namespace)),
                DisruptionBudgetSpec(LabelSelector(match_labels=dict(labels))),
                DisruptionBudgetStatus(allowed),
            )
        )

    def allow(self, namespace: str, name: str, disruptions: int) -> PodDisruptionBudget:
        """Allow this many more disruptions; raises ApiNotFound."""
        old = self.collection.existing(namespace, name)
        return self.collection.replace(replace(old, status=replace(old.status, disruptions_allowed=disruptions)))

    def delete(self, namespace: str, name: str) -> None:
        """Take it away; raises ApiNotFound."""
        self.collection.remove(namespace, name)
