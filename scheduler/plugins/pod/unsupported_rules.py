"""UnsupportedRules: a pod with a requirement that no rule here supports stays Pending.

The unsupported requirements are in `scheduler.pods.mistakes`, the size limit in `scheduler.kube.size_limits`.
"""

from typing import ClassVar

from scheduler.framework.cycle_state import CycleState
from scheduler.framework.plugin import PreFilterPlugin, PreFilterResult, Rejected, Relevance
from scheduler.kube.size_limits import TOO_LARGE
from scheduler.pods.pod import Pod
from scheduler.state.tables import Tables


class UnsupportedRules(PreFilterPlugin):
    """Rejects a pod with a requirement that no rule supports, instead of ignoring the requirement.

    - `pod uses resource claims, which this scheduler does not support yet` (several are separated by commas)
    - `pod exceeds a limit of this scheduler: scheduling terms larger than 128`

    A preference without a rule does not reject; the pod is scheduled without it, and the log names the kind once.
    """

    name: ClassVar[str] = "UnsupportedRules"
    on_by_default: ClassVar[bool] = True
    indispensable: ClassVar[bool] = True

    def pre_filter(self, pod: Pod, tables: Tables, state: CycleState) -> PreFilterResult:  # noqa: ARG002 - the pod says all
        """Name all unsupported requirements of the pod."""
        unsupported = pod.template.unsupported
        if pod.template.over_limit:
            return Rejected(f"pod exceeds a limit of this scheduler: {TOO_LARGE}")
        if not unsupported:
            return Relevance.SKIP
        return Rejected(f"pod uses {', '.join(unsupported)}, which this scheduler does not support yet")
