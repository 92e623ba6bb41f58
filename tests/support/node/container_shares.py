"""Builders: a container's part of its cards."""

from dataclasses import replace

from deviceplugin.allocation.container_share import ContainerShare
from deviceplugin.allocation.decision import Share
from tests.support.node.node_pods import UNIT_MIB, node_pod


def share_of(
    units: int = 3, *, cards: int = 1, percent: int = 0, host_ipc: bool = False, name: str = "p", card_units: int = 16
) -> ContainerShare:
    """Return the share of a pod's first container, `units` on each of `cards` cards (GPU-0000, GPU-0001, …)."""
    pod = replace(node_pod(name, [units * cards], uid=f"uid-{name}"), host_ipc=host_ipc)
    container = replace(pod.containers[0], percent=percent)
    shares = tuple(Share(f"GPU-{index:04}", index, units, card_units) for index in range(cards))
    return ContainerShare(pod, container, shares, UNIT_MIB)
