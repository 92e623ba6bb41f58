"""Objects that select pods: Services and controllers. Pure data, as `objects`; only the selector is read."""

from scheduler.kube.objects import ApiObject, LabelSelector, _Wire


class LabelsSpec(_Wire, frozen=True):
    """selector: labels that a pod must have."""

    selector: dict[str, str] | None = None


class SelectorSpec(_Wire, frozen=True):
    """selector: as pods are selected."""

    selector: LabelSelector | None = None


class Service(ApiObject, frozen=True):
    """v1.Service; without a selector it selects no pods."""

    spec: LabelsSpec = LabelsSpec()


class ReplicationController(ApiObject, frozen=True):
    """v1.ReplicationController."""

    spec: LabelsSpec = LabelsSpec()


class ReplicaSet(ApiObject, frozen=True):
    """apps/v1.ReplicaSet."""

    spec: SelectorSpec = SelectorSpec()


class StatefulSet(ApiObject, frozen=True):
    """apps/v1.StatefulSet."""

    spec: SelectorSpec = SelectorSpec()
