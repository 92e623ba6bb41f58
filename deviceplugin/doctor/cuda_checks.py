"""Evaluates whether CUDA starts on the cards, and whether the driver keeps them initialized. Pure."""

from typing import Final

from deviceplugin.doctor.facts import FAILED, OK, UNKNOWN, WARNING, Facts, Finding, count, some
from deviceplugin.driver.cards import DriverCard
from deviceplugin.driver.cuda import FABRIC, NO_MEMORY, CudaAnswer, cause_of

_NO_LIBRARY: Final = (
    "with the NVIDIA runtime, set NVIDIA_DRIVER_CAPABILITIES=compute,utility in the plugin's container; otherwise run "
    "cuInit in a pod (docs/first-gpu-node.md)"
)
_MORE_MEMORY: Final = "raise devicePlugin.resources.limits.memory"
_PERSISTENCE: Final = "on the node, run systemctl enable --now nvidia-persistenced, or nvidia-smi -pm 1"


def cuda(facts: Facts) -> Finding:
    """Check the result of a real cuInit on each card."""
    if facts.simulated:
        return Finding("cuda", OK, "simulated cards need no CUDA")
    if not facts.driver:
        return Finding("cuda", UNKNOWN, "the driver does not answer")
    if failed := [(card, reason) for card in facts.cards if (reason := _reason(facts, card))]:
        found = some([f"{_of(card)}: {_said(facts.cuda.get(card.uuid), reason)}" for card, reason in failed])
        remedies = [cause.remedy for _, reason in failed if (cause := cause_of(reason))]
        return Finding("cuda", FAILED, found, "; ".join(dict.fromkeys(remedies)))
    if lacking := next((answer.lacking for answer in facts.cuda.values() if answer.lacking), ""):
        remedy = _MORE_MEMORY if lacking.startswith(NO_MEMORY) else _NO_LIBRARY
        return Finding("cuda", UNKNOWN, f"cuInit cannot be tested here: {lacking}", remedy)
    whole = [card for card in facts.cards if not (card.mig or card.parent)]
    untried = [_of(card) for card in whole if card.uuid not in facts.cuda]
    if untried:
        return Finding("cuda", UNKNOWN, f"cuInit was not tested on {some(untried)}", "")
    return Finding("cuda", OK, f"cuInit returned 0 on {count(len(facts.cuda), 'card')}")


def persistence(facts: Facts) -> Finding:
    """Check persistence mode: without it, a program on an idle card waits seconds while the driver initializes it."""
    if facts.simulated:
        return Finding("persistence", OK, "simulated cards need no persistence mode")
    if not facts.readings:
        return Finding("persistence", UNKNOWN, "no card answers")
    off = [_of(card) for card in facts.cards if _forgets(facts, card)]
    if off:
        return Finding(
            "persistence", WARNING, f"off on {some(off)}: starting a program may take seconds per card", _PERSISTENCE
        )
    return Finding("persistence", OK, "on")


def _forgets(facts: Facts, card: DriverCard) -> bool:
    reading = facts.readings.get(card.uuid)
    return reading is not None and not reading.persistent


def _reason(facts: Facts, card: DriverCard) -> str:
    """Return why CUDA does not start on the card, in one word; "" if it does or this is unknown."""
    answer, reading = facts.cuda.get(card.uuid, CudaAnswer(lacking="not tested")), facts.readings.get(card.uuid)
    if answer.lacking and reading is not None and reading.fabric:
        return f"{FABRIC}{reading.fabric}"
    return answer.reason


def _said(answer: CudaAnswer | None, reason: str) -> str:
    if reason.startswith(FABRIC):
        return f"the NVSwitch fabric is {reason.removeprefix(FABRIC)}"
    if answer is None or answer.code is None:
        return answer.detail if answer else reason
    cause = cause_of(reason)
    return f"cuInit returned {answer.code}{f': {cause.what}' if cause else ''}"


def _of(card: DriverCard) -> str:
    return f"card {card.index} ({card.uuid})"
