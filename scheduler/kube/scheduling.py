"""PodGroups of Kubernetes and of other projects: pods that start together. Pure data, like `objects`.

Only how many pods must start together is read.
"""

from scheduler.kube.objects import ApiObject, Int32, _Wire


class GangPolicy(_Wire, frozen=True):
    """Of a native PodGroup. min_count: pods that must start together."""

    min_count: Int32 = 0


class SchedulingPolicy(_Wire, frozen=True):
    """Of a native PodGroup. gang: None if its pods start one by one (`basic`)."""

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


class PodGroup(ApiObject, frozen=True):
    """A PodGroup of any of the API groups in `port.POD_GROUPS`."""

    spec: PodGroupSpec = PodGroupSpec()
