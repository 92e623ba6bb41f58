"""Objects with text that a terminal would interpret: each variant has it in one free text of one object."""

from collections.abc import Iterator, Sequence
from copy import deepcopy
from typing import Any, Final

# Clears the screen, rings, sets a title, the 8-bit CSI, turns the direction, ends lines, goes back, adds a column.
HOSTILE: Final = "x\x1b[2J\x07\x1b]0;t\x07\x9b31m\u202e\u2066\u2028\x85\r\nFAKE\t\x08\x7f\x00"
Path = tuple[str | int, ...]
_SKIPPED: Final = frozenset({"managedFields"})


def texts(found: Any, path: Path = ()) -> Iterator[Path]:  # noqa: ANN401 - JSON
    """Yield the paths of all texts in the values of an object."""
    if isinstance(found, str):
        yield path
    elif isinstance(found, dict):
        for key, inner in found.items():
            if key not in _SKIPPED:
                yield from texts(inner, (*path, key))
    elif isinstance(found, list | tuple):
        for number, inner in enumerate(found):
            yield from texts(inner, (*path, number))


def spoiled(found: Any, path: Path, text: str = HOSTILE) -> Any:  # noqa: ANN401 - as above
    """Return the object with the text appended to the one at the path."""
    made = deepcopy(found)
    inner = made
    for step in path[:-1]:
        inner = inner[step]
    inner[path[-1]] += text
    return made


def shows_only_text(printed: str) -> bool:
    """Return whether a terminal would interpret nothing in it except line ends."""
    return all(line.isprintable() for line in printed.split("\n"))


def variants(objects: Sequence[dict[str, Any]], text: str = HOSTILE) -> list[dict[str, Any]]:
    """Return, for each text of each object, a variant with another name and UID and with that text spoiled."""
    made = []
    for found in objects:
        for number, path in enumerate(texts(found)):
            named = deepcopy(found)
            meta = named["metadata"]
            meta["name"], meta["uid"] = f"{meta['name']}-{number}", f"{meta['uid']}-{number}"
            made.append(spoiled(named, path, text))
    return made
