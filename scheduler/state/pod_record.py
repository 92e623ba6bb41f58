"""What the tables keep of one pod on one node."""

from dataclasses import dataclass, field
from typing import Any, Final

from config.protocol.booked_cards import Written
from scheduler.pods.pod import Pod
from scheduler.state.cards.card_columns import Held
from scheduler.state.changes import Change

_PODS: Final = int(Change.PODS)
_CARDS: Final = int(Change.CARDS)


@dataclass(slots=True, kw_only=True)
class PodRecord:
    """One pod on one node. held: None until the node is there. read: what each fact read of it, in their order.

    pod: as it was seen last. written, exclusive: as they were read first, which is what is booked.
    rivals: (what we chose, what is shown) while it is not known which of them is so. confirmed: the API server has
    answered that it is what we chose.
    """

    pod: Pod
    node: str
    written: Written
    exclusive: bool
    assumed: bool
    rivals: tuple[Written, Written] | None = None
    confirmed: bool = False
    read: list[Any] = field(default_factory=list)
    held: Held | None = None


def booking_kinds(record: PodRecord) -> int:
    """Bits of what a pod changes that comes or goes, whatever facts count of it."""
    return _PODS | _CARDS if record.written.units else _PODS


def problem_of(record: PodRecord) -> str:
    """What is wrong with what the pod says of its cards, "" when nothing is."""
    return record.written.problem if record.held is None else record.held.booked.problem
