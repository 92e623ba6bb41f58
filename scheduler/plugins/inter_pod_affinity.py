"""InterPodAffinity: respects the required anti-affinity of pods that are there already.

The pod's own terms are not built yet: `scheduler.pods.unsupported` keeps a pod that requires them pending.
Source: kube-scheduler, plugins/interpodaffinity/filtering.go, satisfyExistingPodsAntiAffinity.
"""

from collections.abc import Hashable, Sequence
from typing import ClassVar, Final

from scheduler.framework.cycle_state import CycleState, StateKey
from scheduler.framework.plugin import FilterPlugin, Objection
from scheduler.pods.pod import Pod
from scheduler.state.changes import Change
from scheduler.state.columns.arrays import Int64Array, Rows
from scheduler.state.facts.anti_affinity import AntiAffinity
from scheduler.state.tables import Tables

REASON: Final = "node(s) didn't satisfy existing pods anti-affinity rules"
# (PodTerms.version, the slots of the terms that match pods of this class)
_AGAINST: Final[StateKey[tuple[int, Int64Array]]] = StateKey("inter_pod_affinity.against")


class InterPodAffinity(FilterPlugin):
    """Rejects nodes in a topology domain where a pod has a **required anti-affinity** term that matches this pod.

    A term matches in the namespace of its own pod, or in one of its `namespaces`, or in one that its
    `namespaceSelector` takes (`{}` takes all), where its `labelSelector` matches (`{}` takes all, none takes
    nobody).

    - `node(s) didn't satisfy existing pods anti-affinity rules`

    The pod's own terms are not supported: `UnsupportedRules` keeps a pod that requires them pending. A pod with a
    term closes its whole domain, so the rule is asked about all nodes at every decision. Pods are one class as long
    as the same terms match them.
    Source: kube-scheduler, plugins/interpodaffinity/filtering.go, satisfyExistingPodsAntiAffinity.
    """

    name: ClassVar[str] = "InterPodAffinity"
    on_by_default: ClassVar[bool] = True
    depends: ClassVar[Change] = Change.LABELS | Change.PODS | Change.DOMAINS

    def filter(self, pod: Pod, tables: Tables, state: CycleState, rows: Rows) -> Sequence[Objection]:
        """Nodes in a domain where a pod has a term against this one."""
        existing = tables.fact(AntiAffinity)
        if not existing:
            return ()
        against = _against(pod, existing, state)
        return (Objection(existing.closed(against, rows), REASON),) if len(against) else ()

    def opened_by(self, pod: Pod, tables: Tables, state: CycleState) -> int:
        """A pod with a term that matches, when it leaves its domain."""
        existing = tables.fact(AntiAffinity)
        return existing.bits(_against(pod, existing, state))

    def signature(self, pod: Pod, tables: Tables) -> Hashable:
        """The terms that match the pod."""
        return tables.fact(AntiAffinity).signature(pod.key.namespace, pod.labels)


def _against(pod: Pod, existing: AntiAffinity, state: CycleState) -> Int64Array:
    now = existing.terms.version
    try:
        version, against = state.read(_AGAINST)
    except KeyError:
        version = now - 1
    if version != now:
        against = existing.against(pod.key.namespace, pod.labels)
        state.write(_AGAINST, (now, against))
    return against
