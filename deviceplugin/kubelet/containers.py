"""A container as the kubelet's PodResources API lists it. Pure."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class KubeletContainer:
    """One container of a pod that the kubelet knows, with its device ids of our resource; no uid: the API has none."""

    namespace: str
    pod: str
    container: str
    ids: frozenset[str]
