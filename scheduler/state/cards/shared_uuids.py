"""Which rows announce a card's UUID, and on which of them new pods may use it.

A UUID is one card. Two nodes that announce it are one card that was moved while the old node object stayed, a copied
disk, or an attack; booked on both, it would be given away twice. It is used where a live pod holds it; while none does,
on the node that announced it first; where pods hold it on two nodes, on neither.
"""

from collections.abc import Collection, Iterable


class AnnouncedUuids:
    """shared: UUIDs that more than one row announces."""

    def __init__(self) -> None:
        """None."""
        self.shared: set[str] = set()
        self._slot_on: dict[str, dict[int, int]] = {}  # UUID -> row -> slot, in the order of announcement

    def add(self, uuid: str, row: int, slot: int) -> None:
        """The row announces the UUID in this slot."""
        rows = self._slot_on.setdefault(uuid, {})
        rows[row] = slot
        if len(rows) > 1:
            self.shared.add(uuid)

    def discard(self, uuid: str, row: int) -> None:
        """Note that the row does not announce the UUID."""
        rows = self._slot_on.get(uuid)
        if rows is None or rows.pop(row, None) is None:
            return
        if len(rows) == 1:
            self.shared.discard(uuid)
        elif not rows:
            del self._slot_on[uuid]

    def places(self, uuid: str) -> list[tuple[int, int]]:
        """(row, slot) of each announcement, the first first."""
        rows = self._slot_on.get(uuid)
        return [] if rows is None else list(rows.items())

    def owner(self, uuid: str, holding: Collection[int]) -> int | None:
        """The row on which new pods may use the UUID. holding: rows that announce it and on which pods hold it."""
        if len(holding) > 1:
            return None
        return next(iter(holding), None) if holding else next(iter(self._slot_on.get(uuid, ())), None)

    def elsewhere(self, row: int, uuids: Iterable[str]) -> dict[str, list[int]]:
        """Those of `uuids`, of cards of `row`, that other rows announce, too -> those rows."""
        if not self.shared:
            return {}
        return {uuid: [other for other in self._slot_on[uuid] if other != row] for uuid in uuids if uuid in self.shared}
