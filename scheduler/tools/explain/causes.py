"""The cause of a rule's reason in a pod and a node: the taint, the label, the claim by name.

The reasons themselves are kube-scheduler's and name nothing, so that a message stays short on any cluster.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from scheduler.plugins.node import taint_toleration
from scheduler.plugins.pod import pod_topology_spread, spread_constraints
from scheduler.plugins.pod.inter_pod_affinity import NO_COMPANY
from scheduler.plugins.volume import volume_binding
from scheduler.pods.pod import Pod
from scheduler.pods.pod_volumes import PodClaim
from scheduler.state.tables import Tables
from scheduler.state.volumes.claim_state import Bound, ClaimState, Delayed, Immediate
from scheduler.tools.explain.answers import listed

_MOST: Final = 3


def cause(tables: Tables, pod: Pod, row: int, reason: str) -> str:
    """Cause on one node; "" if the reason is complete, or nothing more is known."""
    told = _CAUSES.get(reason)
    return "" if told is None else told(tables, pod, row)


def blocking_claims(tables: Tables, pod: Pod) -> Iterator[str]:
    """A sentence for each claim without a volume that no node can help; a few."""
    unbound = [(used.name, one) for used, one in _claim_states(tables, pod) if isinstance(one, Immediate)]
    for name, claim_state in unbound[:_MOST]:
        yield f"Claim {pod.key.namespace}/{name} is not bound: {_unbound(tables, pod, name, claim_state)}."


def _unbound(tables: Tables, pod: Pod, name: str, claim_state: Immediate) -> str:
    claim = tables.volumes.claim((pod.key.namespace, name))
    class_name = "" if claim is None else claim.wants.class_name
    if claim_state.volume:
        return f"it is to get PersistentVolume {claim_state.volume}" + (
            "" if tables.volumes.volume(claim_state.volume) is not None else ", which does not exist"
        )
    if not class_name:
        return "it names no StorageClass, and no PersistentVolume without one is bound to it"
    known = tables.volumes.of_class(class_name)
    if known is None or known.known is None:
        return f"there is no StorageClass {class_name}"
    return f"its StorageClass {class_name} has not made a volume for it, or bound one to it"


def _taints(tables: Tables, pod: Pod, row: int) -> str:
    found = [
        f"{taint.key}{f'={taint.value}' if taint.value else ''}:{taint.effect}"
        for taint in tables.taints.of_row(row)
        if taint_toleration.has_untolerated((taint,), pod.template.tolerations)
    ]
    return listed(found, _MOST)


def _lacking(tables: Tables, pod: Pod, row: int) -> str:
    return _labels(
        tables, row, (each.topology_key for each in spread_constraints.written(pod.template) if not each.soft)
    )


def _no_company(tables: Tables, pod: Pod, row: int) -> str:
    terms = pod.template.affinity.required_during_scheduling_ignored_during_execution
    return _labels(tables, row, (term.topology_key for term in terms))


def _labels(tables: Tables, row: int, keys: Iterator[str]) -> str:
    missing = [key for key in dict.fromkeys(keys) if key not in tables.labels.of_row(row)]
    nowhere = [key for key in missing if not len(tables.labels.column(key).values)]
    if nowhere:
        return f"no node has the label {listed(nowhere, _MOST)}"
    return f"the node lacks the label {listed(missing, _MOST)}" if missing else ""


def _skewed(tables: Tables, pod: Pod, row: int) -> str:
    labels = tables.labels.of_row(row)
    for each, held in spread_constraints.domains(pod.template, pod.key.namespace, pod.labels, tables):
        written = each.written
        own, fewest = labels.get(written.topology_key, ""), min(held, key=lambda domain: (held[domain], domain))
        enough = len(held) >= written.min_domains
        least = held[fewest] if enough else 0
        if held.get(own, 0) - least <= written.max_skew - each.takes_self:
            continue
        other = f"{fewest} has {least}" if enough else f"domains: {len(held)}, minDomains is {written.min_domains}"
        return f"{written.topology_key}: {own} has {held.get(own, 0)}, {other}, maxSkew is {written.max_skew}"
    return ""


def _claim_states(tables: Tables, pod: Pod) -> Iterator[tuple[PodClaim, ClaimState]]:
    return zip(dict.fromkeys(pod.volumes.claims), tables.volumes.of_pod(pod).claim_states, strict=True)


def _claims(tables: Tables, pod: Pod, matters: Callable[[ClaimState], str]) -> str:
    told = [(used.name, matters(claim_state)) for used, claim_state in _claim_states(tables, pod)]
    return listed([f"claim {name}{text}" for name, text in told if text], _MOST)


def _delayed(tables: Tables, pod: Pod, row: int) -> str:  # noqa: ARG001 - as every cause
    def of_class(claim_state: ClaimState) -> str:
        if not isinstance(claim_state, Delayed):
            return ""
        being_made = (
            f", whose volume is made on node {volume_binding.shown(claim_state.selected)}"
            if claim_state.selected
            else ""
        )
        return f" of StorageClass {claim_state.claim.wants.class_name}{being_made}"

    return _claims(tables, pod, of_class)


def _elsewhere(tables: Tables, pod: Pod, row: int) -> str:
    def volume(claim_state: ClaimState) -> str:
        reach = claim_state.reach if isinstance(claim_state, Bound) else None
        away = reach is not None and not reach.over(tables, slice(row, row + 1))[0]
        return f" has PersistentVolume {claim_state.volume}" if isinstance(claim_state, Bound) and away else ""

    return _claims(tables, pod, volume)


_CAUSES: Final[Mapping[str, Callable[[Tables, Pod, int], str]]] = {
    taint_toleration.REASON: _taints,
    pod_topology_spread.LACKING: _lacking,
    pod_topology_spread.SKEWED: _skewed,
    NO_COMPANY: _no_company,
    volume_binding.BIND_CONFLICT: _delayed,
    volume_binding.NOT_ENOUGH_SPACE: _delayed,
    volume_binding.NODE_CONFLICT: _elsewhere,
}
