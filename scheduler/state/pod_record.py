"""What the tables keep of one pod on one node."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

import msgspec

from config.protocol.booked_cards import Written
from scheduler.pods.pod import Pod
from scheduler.state.cards.card_columns import Held
from scheduler.state.changes import Change

NOTHING_SENT: Final[Mapping[str, str]] = MappingProxyType({})
_PODS: Final = int(Change.PODS)
_CARDS: Final = int(Change.CARDS)


class PodRecord(msgspec.Struct, eq=False, kw_only=True):
    """One pod on one node. held: None until the node is there. read: what each fact read of it, in their order.

    pod: as it was seen last. written, exclusive: as they were read first, which is what is booked.
    rivals: (what we chose, what is shown) while it is not known which of them is so. confirmed: the API server has
    answered that it is what we chose. sent: the annotations of our Binding while the pod is assumed.
    nominated: the pod has no node yet; the place is kept for it, see `scheduler.state.nominations`.
    lifted: it is not booked for the moment, see `Bookings.lift`. going: it has to go for a pod whose place is kept.
    undeletable: the API server has rejected its deletion.
    """

    pod: Pod
    node: str
    written: Written
    exclusive: bool
    assumed: bool
    rivals: tuple[Written, Written] | None = None
    confirmed: bool = False
    sent: Mapping[str, str] = NOTHING_SENT
    read: list[Any] = []
    held: Held | None = None
    nominated: bool = False
    lifted: bool = False
    going: bool = False
    undeletable: bool = False

    def shows_what_was_sent(self, pod: Pod) -> bool:
        """Whether the pod, as it is seen now, carries every annotation of our Binding, and asks what it asked then."""
        sent = self.sent
        return bool(sent) and pod.template is self.pod.template and sent.items() <= pod.annotations.items()


def booking_kinds(record: PodRecord) -> int:
    """Bits of what a pod changes that comes or goes, whatever facts count of it."""
    return _PODS | _CARDS if record.written.units else _PODS


def problem_of(record: PodRecord) -> str:
    """What is wrong with what the pod says of its cards, "" when nothing is."""
    return record.written.problem if record.held is None else record.held.booked.problem
