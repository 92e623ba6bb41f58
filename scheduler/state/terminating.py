"""Terminating pods on record that hold GPU memory: room that becomes free without any action."""

from collections.abc import Iterator

from scheduler.state.pod_record import PodRecord


class Terminating:
    """Owned by the tables."""

    def __init__(self) -> None:
        self._records: dict[str, PodRecord] = {}

    def __iter__(self) -> Iterator[PodRecord]:
        """Their records, the one that was noted first first."""
        return iter(self._records.values())

    def note(self, record: PodRecord) -> None:
        """The pod is on record, as it was seen last."""
        if record.pod.terminating and record.written.units:
            self._records[record.pod.key.uid] = record

    def gone(self, uid: str) -> None:
        """The pod is not on record."""
        self._records.pop(uid, None)
