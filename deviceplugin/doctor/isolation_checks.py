"""Checks what limits by NVIDIA's driver need, one check for each requirement, and what enforces shares now. Pure."""

from collections import Counter
from typing import Final

from config.protocol.isolation import DRIVER, worded
from config.settings.isolation import AUTO
from deviceplugin.cdi.limit_hooks import NAME
from deviceplugin.cdi.nvidia_spec import GENERATE
from deviceplugin.doctor.facts import FAILED, OK, UNKNOWN, WARNING, Facts, Finding, count, some
from deviceplugin.driver.cards import DriverCard
from deviceplugin.isolation.driver_limits import FIRST_DRIVER, FIRST_TOOLKIT

_ENVIRONMENT: Final = "environment"
_CGROUP: Final = (
    "boot the node with cgroup v2 and a kernel that has the controller dmem (6.14 or later) or misc; mount the host's "
    "/sys/fs/cgroup at hostCgroup"
)


def limits(facts: Facts) -> Finding:
    """Check that the driver can limit memory on the cards that pods share."""
    if facts.isolation not in {AUTO, DRIVER}:
        return Finding("limits", OK, _unused(facts))
    if not facts.driver:
        return Finding("limits", UNKNOWN, "the driver does not answer")
    shared = [card for card in facts.cards if not (card.mig or card.parent)]
    bare = [card for card in shared if not card.limits]
    if not shared:
        return Finding("limits", OK, "advisory: the driver limits no memory in MIG mode")
    if not bare:
        return Finding("limits", OK, f"driver {facts.driver} can limit memory on {count(len(shared), 'card')}")
    found = f"advisory: driver {facts.driver} cannot limit memory on {some([_named(card) for card in bare])}"
    if _strict(facts):
        return Finding("limits", FAILED, found, f"install driver {FIRST_DRIVER} or later")
    # Nothing is wrong: `auto` asks for limits only where the driver has them.
    return Finding("limits", OK, f"{found}; driver {FIRST_DRIVER} or later can")


def cgroup(facts: Facts) -> Finding:
    """Check that the host has cgroups that the driver can limit."""
    if unused := _not_applicable(facts):
        return Finding("cgroup", OK, unused)
    if facts.cgroup_problem:
        return Finding("cgroup", FAILED if _strict(facts) else WARNING, f"advisory: {facts.cgroup_problem}", _CGROUP)
    return Finding("cgroup", OK, "cgroup v2 with a controller for device memory")


def hook(facts: Facts) -> Finding:
    """Check that containers get their cards through CDI specs that have NVIDIA's hook."""
    if unused := _not_applicable(facts):
        return Finding("hook", OK, unused)
    verdict = FAILED if _strict(facts) else WARNING
    if (facts.status.mode if facts.status else facts.mode) == _ENVIRONMENT:
        found = "advisory: in mode environment, a pod can replace its own limit"
        return Finding("hook", verdict, found, "set mode: cdi; first drain the node")
    bare = [_named(card) for card in facts.cards if card.uuid in facts.hookless]
    if bare:
        remedy = f"install NVIDIA container toolkit {FIRST_TOOLKIT} or later; then, on the node, run {GENERATE}"
        return Finding("hook", verdict, f"advisory: the CDI spec has no hook {NAME} for {some(bare)}", remedy)
    return Finding("hook", OK, f"the CDI specs have the hook {NAME}")


def isolation(facts: Facts) -> Finding:
    """Check what enforces the pods' shares of memory."""
    if facts.status is None:
        return Finding("isolation", UNKNOWN, "the plugin does not answer")
    cards = [card for card in facts.status.cards if card.units]
    words = Counter(worded(card.isolation) for card in cards)
    told = ", ".join(f"{count(number, 'card')} {word}" for word, number in sorted(words.items()))
    found = f"isolation {facts.status.isolation or 'undecided'}: {told or 'no card is shared'}"
    if _strict(facts) and any(not card.isolation for card in cards):
        remedy = "see limits, cgroup and hook" if facts.isolation in {AUTO, DRIVER} else "set isolation"
        return Finding("isolation", FAILED, found, remedy)
    return Finding("isolation", OK, found)


def _strict(facts: Facts) -> bool:
    return facts.isolation == DRIVER or facts.enforcement == "required"


def _unused(facts: Facts) -> str:
    return f"not needed with isolation: {facts.isolation}"


def _not_applicable(facts: Facts) -> str:
    """Return why the host and the CDI specs need nothing for limits; "" if they do."""
    if facts.isolation not in {AUTO, DRIVER}:
        return _unused(facts)
    if facts.simulated:
        return "simulated cards need none"
    return "" if any(card.limits for card in facts.cards) else "not needed: the driver cannot limit memory"


def _named(card: DriverCard) -> str:
    return f"card {card.index} ({card.uuid})"
