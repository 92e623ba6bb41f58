"""PodGroups of Kubernetes and of other projects: pods that start together. Pure data, like `objects`.

Only how many pods must start together is read.
"""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final

from scheduler.kube.objects import ApiObject, Int32, _Wire
from scheduler.kube.port import KINDS, Kind


class GangPolicy(_Wire, frozen=True):
    """Gang of a native PodGroup. min_count: pods that must start together."""

    min_count: Int32 = 0


class SchedulingPolicy(_Wire, frozen=True):
    """Policy of a native PodGroup. gang: None if its pods start one by one (`basic`)."""

    gang: GangPolicy | None = None


class PodGroupSpec(_Wire, frozen=True):
    """Specification of a PodGroup. min_member: as scheduler-plugins and Volcano write it."""

    min_member: Int32 = 0
    scheduling_policy: SchedulingPolicy | None = None

    @property
    def minimum(self) -> int:
        """Pods that must start together; 0 if they start one by one."""
        policy = self.scheduling_policy
        if policy is not None and policy.gang is not None:
            return policy.gang.min_count
        return self.min_member


class PodGroupObject(ApiObject, frozen=True):
    """A PodGroup of any of the API groups in POD_GROUPS."""

    API_KIND: ClassVar[str] = "PodGroup"

    spec: PodGroupSpec = PodGroupSpec()


NATIVE_GROUP: Final = "scheduling.k8s.io"
PLUGINS_GROUP: Final = "scheduling.x-k8s.io"
VOLCANO_GROUP: Final = "scheduling.volcano.sh"


def _pod_groups(api_group: str, version: str) -> Kind[PodGroupObject]:
    return Kind(
        f"podgroups.{version}.{api_group}", PodGroupObject, f"/apis/{api_group}/{version}/podgroups", optional=True
    )


# By the API group that serves them. Most clusters have none of these kinds.
POD_GROUPS: Final[Mapping[str, Sequence[Kind[PodGroupObject]]]] = {
    # v1alpha2 in 1.36, v1beta1 in 1.37.
    NATIVE_GROUP: (_pod_groups(NATIVE_GROUP, "v1beta1"), _pod_groups(NATIVE_GROUP, "v1alpha2")),
    PLUGINS_GROUP: (_pod_groups(PLUGINS_GROUP, "v1alpha1"),),
    VOLCANO_GROUP: (_pod_groups(VOLCANO_GROUP, "v1beta1"),),
}
# Without them everything else works.
OPTIONAL: Final[tuple[Kind[Any], ...]] = tuple(kind for kinds in POD_GROUPS.values() for kind in kinds)
KINDS_AND_OPTIONAL: Final = (*KINDS, *OPTIONAL)
