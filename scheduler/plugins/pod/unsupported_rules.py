"""UnsupportedRules: a pod with a requirement that no rule here supports stays Pending.

The unsupported requirements are in `scheduler.pods.mistakes`, the size limits in `scheduler.kube.size_limits`.
"""

from typing import ClassVar

from scheduler.framework.cycle_state import CycleState
from scheduler.framework.plugin import PreFilterPlugin, PreFilterResult, Rejected, Relevance
from scheduler.pods.pod import Pod
from scheduler.state.tables import Tables


class UnsupportedRules(PreFilterPlugin):
    """Rejects a pod with a requirement that no rule supports, instead of ignoring the requirement.

    - `pod uses resource claims, which this scheduler does not support yet` (several are separated by commas)
    - `pod exceeds a limit of this scheduler: 5000 node affinity terms (at most 64)`

    A preference without a rule does not reject; the pod is scheduled without it, and the log names the kind once.
    """

    name: ClassVar[str] = "UnsupportedRules"
    on_by_default: ClassVar[bool] = True
    indispensable: ClassVar[bool] = True

    def pre_filter(self, pod: Pod, tables: Tables, state: CycleState) -> PreFilterResult:  # noqa: ARG002 - the pod says all
        """Name all unsupported requirements of the pod."""
        over_limit, unsupported = pod.template.over_limit, pod.template.unsupported
        if over_limit:
            return Rejected(f"pod exceeds a limit of this scheduler: {', '.join(over_limit)}")
        if not unsupported:
            return Relevance.SKIP
        return Rejected(f"pod uses {', '.join(unsupported)}, which this scheduler does not support yet")
