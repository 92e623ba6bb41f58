"""The kinds that the chart may render, and the first Kubernetes version that serves each by default.

Sources: `+k8s:prerelease-lifecycle-gen:introduced=` above each type of k8s.io/api in 1.36.3; for the mutating policies
also their gate in k8s.io/apiserver, pkg/features/kube_features.go, of that version. None of these interfaces has been
withdrawn: client-go 0.37.0 has all of them. Kinds of monitoring.coreos.com belong to the Prometheus Operator, and the
one of security.openshift.io to OpenShift, independent of the Kubernetes version.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from scheduler.kube.versions import Minor


class Kind(NamedTuple):
    """A kind as an object names it."""

    api_version: str
    kind: str


_ADMISSION: Final = "admissionregistration.k8s.io/v1"
_MONITORING: Final = "monitoring.coreos.com/v1"
_RBAC: Final = "rbac.authorization.k8s.io/v1"

SINCE: Final[Mapping[Kind, Minor]] = {
    Kind("v1", "ServiceAccount"): Minor(1, 0),
    Kind("v1", "Service"): Minor(1, 0),
    Kind("v1", "ConfigMap"): Minor(1, 2),
    Kind(_RBAC, "ClusterRole"): Minor(1, 8),
    Kind(_RBAC, "ClusterRoleBinding"): Minor(1, 8),
    Kind(_RBAC, "Role"): Minor(1, 8),
    Kind(_RBAC, "RoleBinding"): Minor(1, 8),
    Kind("apps/v1", "Deployment"): Minor(1, 9),
    Kind("apps/v1", "DaemonSet"): Minor(1, 9),
    Kind("networking.k8s.io/v1", "NetworkPolicy"): Minor(1, 7),
    Kind("policy/v1", "PodDisruptionBudget"): Minor(1, 21),
    Kind("flowcontrol.apiserver.k8s.io/v1", "FlowSchema"): Minor(1, 29),
    Kind(_ADMISSION, "ValidatingAdmissionPolicy"): Minor(1, 30),
    Kind(_ADMISSION, "ValidatingAdmissionPolicyBinding"): Minor(1, 30),
    Kind(_ADMISSION, "MutatingAdmissionPolicy"): Minor(1, 36),
    Kind(_ADMISSION, "MutatingAdmissionPolicyBinding"): Minor(1, 36),
}
OF_THE_PROMETHEUS_OPERATOR: Final = frozenset(
    Kind(_MONITORING, kind) for kind in ("PodMonitor", "ServiceMonitor", "PrometheusRule")
)
OF_OPENSHIFT: Final = frozenset({Kind("security.openshift.io/v1", "SecurityContextConstraints")})
OF_OTHERS: Final = OF_THE_PROMETHEUS_OPERATOR | OF_OPENSHIFT
OLDEST: Final = Minor(1, 29)
NEWEST: Final = Minor(1, 37)


def unserved(kinds: frozenset[Kind], minor: Minor) -> frozenset[Kind]:
    """Return the kinds that are unknown or that this Kubernetes version does not serve."""
    known = OF_OTHERS | {kind for kind, since in SINCE.items() if since <= minor}
    return kinds - known
