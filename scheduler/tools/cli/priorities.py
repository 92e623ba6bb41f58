"""The priority that the API server gives a pod that names a PriorityClass, or none. Pure."""

from collections.abc import Mapping, Sequence
from typing import Final

from msgspec.structs import replace

from scheduler.kube import objects
from scheduler.tools.cli.manifests import Manifest

# Classes of every cluster. Source: pkg/apis/scheduling/types.go, SystemCriticalPriority, and v1/helpers.go.
SYSTEM_CLASSES: Final[Mapping[str, int]] = {
    "system-cluster-critical": 2_000_000_000,
    "system-node-critical": 2_000_001_000,
}

# Sentence about a class that is not among the readable ones.
NOT_THERE: Final = "There is no PriorityClass {}, so the API server refuses the pod"
UNREADABLE: Final = "Its PriorityClass {} cannot be read"
OF_FILES: Final = "Its PriorityClass {} is not known, since cluster files hold none"


def given(
    asked: Manifest, classes: Sequence[objects.PriorityClass], lacking: str
) -> tuple[objects.PodObject, tuple[str, ...]]:
    """(the pod with the priority of its class, sentences about that).

    classes: readable classes. lacking: sentence about a class that is not among them, with {} for its name.
    """
    pod, name = asked.pod, asked.priority_class
    suiting = [one for one in classes if (one.metadata.name == name if name else one.global_default)]
    if suiting:
        # The lowest of several defaults. Source: plugin/pkg/admission/priority/admission.go, getDefaultPriority.
        chosen = min(suiting, key=lambda one: one.value)
        policy = pod.spec.preemption_policy or chosen.preemption_policy
        return replace(pod, spec=replace(pod.spec, priority=chosen.value, preemption_policy=policy)), ()
    if name in SYSTEM_CLASSES:
        return replace(pod, spec=replace(pod.spec, priority=SYSTEM_CLASSES[name])), ()
    if not name:
        return pod, ()
    own = pod.spec.priority
    said = f"{own}, as its spec.priority says" if own else "0"
    return pod, (f"{lacking.format(name)}: its priority is taken as {said}.",)
