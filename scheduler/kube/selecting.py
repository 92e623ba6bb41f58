"""Objects that select pods: Services and controllers. Pure data, like `objects`; only the selector is read."""

from scheduler.kube.objects import ApiObject, LabelSelector, _Wire


class LabelsSpec(_Wire, frozen=True):
    """A specification with a selector that is a set of labels. selector: labels that a pod must have."""

    selector: dict[str, str] | None = None


class SelectorSpec(_Wire, frozen=True):
    """A specification with a label selector. selector: selects pods."""

    selector: LabelSelector | None = None


class Service(ApiObject, frozen=True):
    """v1.Service; it selects no pods if it has no selector."""

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
