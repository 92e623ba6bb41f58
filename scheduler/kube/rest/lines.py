"""Bytes as they arrive -> whole lines, in time linear in the bytes however long a line is."""


class LineSplitter:
    """Holds the beginning of the line that is not complete yet, as the pieces that it came in."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []

    def feed(self, chunk: bytes) -> list[bytes]:
        r"""Return the lines that `chunk` completes, without "\n", each a copy of its own; empty lines are left out."""
        first, *others = chunk.split(b"\n")
        self._pieces.append(first)
        if not others:
            return []
        lines = [b"".join(self._pieces), *others]
        self._pieces = [lines.pop()]
        return [line for line in lines if line]
