"""Probable mistakes of a pod's author, and requirements that this scheduler does not support yet. Pure.

A pod with a mistake is read as written, and its owner gets a hint. An unknown key has no effect, so without a hint the
pod would be bound without the rule that its author meant. Hints cover keys with our prefix and keys that differ from
one of ours by a letter; each pod gets only a few.

A pod with an unsupported requirement stays Pending with a message that names it, and is never bound as if it had none.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import chain, islice
from typing import Final

from config.protocol import names
from scheduler.kube import objects
from scheduler.pods.gpu_request import ResourceNames
from scheduler.pods.pod_volumes import JUDGED

# Volumes that do not restrict the node: they are created or mounted wherever the pod runs. Pods with a
# kind that Kubernetes adds later stay Pending until this scheduler supports it.
_FREE_VOLUMES: Final = frozenset(
    {
        *("configMap", "secret", "emptyDir", "projected", "downwardAPI", "hostPath", "image", "gitRepo", "csi"),
        *("nfs", "cephfs", "glusterfs", "azureFile", "flexVolume", "fc", "flocker", "photonPersistentDisk"),
        *("quobyte", "scaleIO", "storageos", "vsphereVolume"),
    }
)


def unsupported_rules(pod: objects.PodObject) -> tuple[str, ...]:
    """Return the unsupported requirements of the pod, as text for users."""
    return (*_volumes(pod.spec), *_groups(pod.spec))


def _volumes(spec: objects.PodSpec) -> tuple[str, ...]:
    kinds = {kind for volume in spec.volumes for kind in volume if kind != "name"} - _FREE_VOLUMES - JUDGED
    return tuple(f"volumes of kind {kind}" for kind in sorted(kinds))


def _groups(spec: objects.PodSpec) -> tuple[str, ...]:
    found = []
    if spec.resource_claims:
        found.append("resource claims")
    if spec.workload_ref is not None:
        found.append("workload references")
    return tuple(found)


MOST: Final = 3
_PREFIX: Final = "gpushare/"
_RESOURCE_PREFIX: Final = "aliyun.com/gpu-"
_LIKE: Final = "gpu"
_LONGEST_KEY: Final = 128
_LONGEST_AMOUNT: Final = 16
_MOST_SUSPECTS: Final = 16
_KNOWN: Final = "known keys: "
_NEAR: Final = 0.6  # share of the letters
_EMPTY: Final[Mapping[str, str]] = {}
# A digit, or a single letter.
_OF_A_SERIES: Final = re.compile(r"\d|(?<![a-z])[a-z](?![a-z])")
_POD_KEYS: Final = names.POD_ANNOTATIONS | names.POD_LABELS


def mistakes(wire: objects.PodObject, resources: ResourceNames) -> tuple[str, ...]:
    """Return hints for the owner of a waiting pod, at most MOST sentences."""
    return tuple(_keys_told_once(islice(_found(wire, resources), MOST)))


def node_mistakes(node: objects.Node) -> tuple[str, ...]:
    """Return hints about a node's annotations, at most MOST sentences."""
    unknown = (
        key
        for key in node.metadata.annotations or _EMPTY
        if key.startswith(_PREFIX) and key not in names.NODE_ANNOTATIONS
    )
    known = tuple(sorted(names.NODE_ANNOTATIONS))
    return tuple(_keys_told_once(_unknown("annotation", key, known) for key in islice(unknown, MOST)))


def forgotten(scheduler_name: str, ours: str) -> str:
    """Return a hint for a pod that requests GPU memory and names another scheduler."""
    return (
        f"it requests GPU memory, but its schedulerName is {scheduler_name}, which assigns no cards: "
        f"add `schedulerName: {ours}` to its spec"
    )


def misspelt(scheduler_name: str, ours: Collection[str]) -> str:
    """Return the name of ours that was probably meant; "" if the name may belong to another scheduler.

    Names that form a series, such as team-a and team-b, or scheduler and scheduler2, differ by a letter but are not
    misspellings.
    """
    near = (
        name
        for name in sorted(ours)
        if abs(len(name) - len(scheduler_name)) <= 1
        and _differs_by_a_letter(scheduler_name, name)
        and _OF_A_SERIES.findall(scheduler_name) == _OF_A_SERIES.findall(name)
    )
    return next(near, "")


def misspelt_as(scheduler_name: str, meant: str) -> str:
    """Return a hint for a pod that requests GPU memory and misspells one of our names."""
    return (
        f"it requests GPU memory, but its schedulerName is {scheduler_name}, probably misspelled: "
        f"write `schedulerName: {meant}`"
    )


def _found(wire: objects.PodObject, resources: ResourceNames) -> Iterator[str]:
    meta = wire.metadata
    for kind, written, read in (
        ("annotation", meta.annotations, names.POD_ANNOTATIONS),
        ("label", meta.labels, names.POD_LABELS),
    ):
        # Hardly any pod has a key that could be meant for us.
        if written and _LIKE in "".join(written).lower():
            yield from _of_keys(kind, written, read | {resources.gpu_count}, resources)
    says_count = any(resources.gpu_count in (written or _EMPTY) for written in (meta.annotations, meta.labels))
    yield from _of_resources(wire.spec, resources, says_count=says_count)
    yield from _of_amounts(wire.spec, resources)


def _of_keys(kind: str, written: Iterable[str], read: Collection[str], resources: ResourceNames) -> Iterator[str]:
    suspects = (key for key in written if _LIKE in key.lower() and key not in read and key not in names.LEGACY_KEYS)
    for key in islice(suspects, _MOST_SUSPECTS):
        if key in _POD_KEYS:
            other = "an annotation" if kind == "label" else "a label"
            yield f"{kind} {key} has no effect: write it as {other}"
        elif key in {resources.gpu_mem, resources.gpu_core}:
            yield f"{kind} {key} has no effect: write it under a container's limits"
        elif key in names.NODE_ANNOTATIONS:
            yield f"{kind} {key} has no effect on a pod: it is meant for nodes"
        elif key.startswith((_PREFIX, _RESOURCE_PREFIX)) or _a_letter_away(key):
            yield _unknown(kind, key, tuple(sorted(_POD_KEYS)))


def _of_resources(spec: objects.PodSpec, resources: ResourceNames, *, says_count: bool) -> Iterator[str]:
    """Yield hints about resource names. says_count: a label or annotation gives the number of cards."""
    known = {resources.gpu_mem, resources.gpu_core}
    for container, limits, requests in _asked(spec):
        for name, amount in chain(limits.items(), requests.items()):
            if name in known or not (name == resources.gpu_count or name.startswith(_RESOURCE_PREFIX)):
                continue
            known.add(name)
            as_label = f'label or annotation {resources.gpu_count}: "{str(amount)[:_LONGEST_AMOUNT]}"'
            if name != resources.gpu_count:
                yield _unknown_resource(name, resources, as_label)
            elif not says_count:
                yield (
                    f"container {container} has {name} among its resources, where it assigns no cards: "
                    f"write it as a {as_label}"
                )


def _unknown_resource(name: str, resources: ResourceNames, as_label: str) -> str:
    """Return a hint about an unknown resource name. as_label: how to write the number of cards."""
    shown, ours = name[:_LONGEST_KEY], (resources.gpu_mem, resources.gpu_core, resources.gpu_count)
    hint = _hint(shown, ours)
    if hint == _meant(resources.gpu_count):
        hint = _meant(as_label)
    return f"resource {shown} is unknown, so the pod waits for a node that offers it: {hint}"


def _asked(
    spec: objects.PodSpec,
) -> Iterator[tuple[str, Mapping[str, str | int | float], Mapping[str, str | int | float]]]:
    """Yield (name, limits, requests) of each container."""
    for container in chain(spec.containers, spec.init_containers):
        asked = container.resources
        yield container.name, asked.limits or _EMPTY if asked else _EMPTY, asked.requests or _EMPTY if asked else _EMPTY


def _of_amounts(spec: objects.PodSpec, resources: ResourceNames) -> Iterator[str]:
    named, zero = False, True
    for container, limits, requests in _asked(spec):
        if resources.gpu_mem in requests and resources.gpu_mem not in limits:
            yield (
                f"container {container} has {resources.gpu_mem} under requests only: write "
                f"{resources.gpu_mem}: {requests[resources.gpu_mem]} under its limits"
            )
        amount = limits.get(resources.gpu_mem, requests.get(resources.gpu_mem))
        if amount is not None:
            named = True
            zero = zero and str(amount) == "0"
    if zero and named:
        yield f"{resources.gpu_mem} is 0, so the pod gets no card: write 1 or more, or leave it out"


def _unknown(kind: str, key: str, known: Collection[str]) -> str:
    shown = key[:_LONGEST_KEY]
    return f"{kind} {shown} is unknown and has no effect: {_hint(shown, known)}"


def _hint(key: str, known: Collection[str]) -> str:
    near = max(sorted(known), key=lambda ours: (ours.startswith(f"{key}."), _likeness(key, ours)))
    if near.startswith(f"{key}.") or _likeness(key, near) >= _NEAR:
        return _meant(near)
    return f"{_KNOWN}{', '.join(sorted(set(known) - set(names.ALLOCATION_KEYS)))}"


def _keys_told_once(hints: Iterable[str]) -> Iterator[str]:
    """Yield the hints, the list of known keys only the first time: an Event's message has limited room."""
    told = False
    for hint in hints:
        head, sign, _ = hint.partition(f": {_KNOWN}")
        yield head if sign and told else hint
        told = told or bool(sign)


def _meant(name: str) -> str:
    return f"did you mean {name}?"


def _likeness(key: str, ours: str) -> float:
    """Return the similarity of the parts after the prefix, 0 to 1."""
    one, other = key.rpartition("/")[2], ours.rpartition("/")[2]
    return _in_common(one, other) / max(len(one), len(other), 1)


def _a_letter_away(key: str) -> bool:
    """Return whether adding, removing or changing a letter, or swapping two, turns the key into one of ours."""
    return any(_differs_by_a_letter(key, ours) for ours in _POD_KEYS if abs(len(key) - len(ours)) <= 1)


def _differs_by_a_letter(key: str, ours: str) -> bool:
    longest, common = max(len(key), len(ours)), _in_common(key, ours)
    if common >= longest - 1:
        return True
    at = _begins_alike(key, ours)
    swapped = len(key) == len(ours) and common == longest - 2
    return swapped and key[at : at + 2] == ours[at : at + 2][::-1]


def _in_common(one: str, other: str) -> int:
    """Return the number of letters in the common prefix and the common suffix."""
    head = _begins_alike(one, other)
    return head + _begins_alike(one[head:][::-1], other[head:][::-1])


def _begins_alike(one: str, other: str) -> int:
    pairs = zip(one, other, strict=False)
    return next((number for number, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))
