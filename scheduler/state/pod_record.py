"""Record of one pod on one node in the tables."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

import msgspec

from config.protocol.booked_cards import WrittenAllocation
from scheduler.pods.pod import Pod
from scheduler.state.cards.card_columns import Held
from scheduler.state.changes import Change

NOTHING_SENT: Final[Mapping[str, str]] = MappingProxyType({})
_PODS: Final = int(Change.PODS)
_CARDS: Final = int(Change.CARDS)


class PodRecord(msgspec.Struct, eq=False, kw_only=True):
    """One pod on one node. held: None until the node exists. read: the value of each fact, in the order of the facts.

    pod: as last seen. written, exclusive: as first read; these values are booked.
    rivals: (our choice, the shown allocation) while it is unknown which one is valid. confirmed: the API server has
    confirmed our choice. sent: the annotations of our Binding while the pod is assumed.
    nominated: the pod has no node yet, see `scheduler.state.nominations`. lifted: temporarily not booked, see
    `Bookings.lift`. going: it is a victim of a nominated pod. undeletable: the API server has rejected its deletion.
    """

    pod: Pod
    node: str
    written: WrittenAllocation
    exclusive: bool
    assumed: bool
    rivals: tuple[WrittenAllocation, WrittenAllocation] | None = None
    confirmed: bool = False
    sent: Mapping[str, str] = NOTHING_SENT
    read: list[Any] = []
    held: Held | None = None
    nominated: bool = False
    lifted: bool = False
    going: bool = False
    undeletable: bool = False

    def shows_what_was_sent(self, pod: Pod) -> bool:
        """Whether the pod as seen now has every annotation of our Binding and its original requests."""
        sent = self.sent
        return bool(sent) and pod.template is self.pod.template and sent.items() <= pod.annotations.items()


def booking_kinds(record: PodRecord) -> int:
    """Bits of the changes when a pod comes or goes, except those of facts."""
    return _PODS | _CARDS if record.written.units else _PODS


def problem_of(record: PodRecord) -> str:
    """Error in the pod's card annotations, "" for none."""
    return record.written.problem if record.held is None else record.held.booked.problem
