"""Requirements of NVIDIA's driver to enforce a container's share of memory. Pure.

The driver keeps limits for each cgroup and card since release 615; NVIDIA's CDI hook passes them to it when a container
is created.
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from deviceplugin.cdi import limit_hooks
from deviceplugin.driver.cards import DriverCard

FIRST_DRIVER: Final = "615"
FIRST_TOOLKIT: Final = "1.20.1"


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitSupport:
    """The node's support for limits by the driver. real: False for simulated cards, which need no hook and no cgroup.

    cdi: containers get their cards through CDI. cgroup: why the host's cgroups cannot be limited, "" if they can.
    hookless: UUIDs of cards that NVIDIA's CDI specs inject without the hook. uncovered: of cards that they leave out.
    known: whether these facts are known.
    """

    cdi: bool
    cgroup: str = ""
    hookless: Collection[str] = ()
    uncovered: Collection[str] = ()
    real: bool = True
    known: bool = True


def missing(card: DriverCard, support: LimitSupport) -> str:
    """Return why the driver cannot enforce shares of this card; "" if it can."""
    if card.mig or card.parent:
        return "the driver limits no memory on cards in MIG mode, nor on their instances"
    if not card.limits:
        return f"the driver cannot limit memory on the card; that needs driver {FIRST_DRIVER} or later"
    if not support.cdi:
        return (
            "containers get their cards through the environment, where a pod can replace its own limit; set mode: cdi"
        )
    return (support.cgroup or _without_hook(card, support)) if support.real else ""


def _without_hook(card: DriverCard, support: LimitSupport) -> str:
    if card.uuid in support.uncovered:
        return "no CDI spec injects the card"
    if card.uuid in support.hookless:
        return (
            f"its CDI spec has no hook {limit_hooks.NAME}; NVIDIA container toolkit {FIRST_TOOLKIT} or later writes it"
        )
    return ""
