"""One document -> the same with a few things wrong. Structure-aware: values change where values are, lists grow.

A document in a text is looked into: an inventory in an annotation is changed inside, too. The result is bytes, since
some of what is wrong (a key twice, 1e1000, NaN, a lone surrogate, 100,000 brackets) is no value of Python.
"""

import copy
import json
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

Json: TypeAlias = Any
Path: TypeAlias = tuple[str | int, ...]
# kube-apiserver takes no request of more than 3 MiB, etcd none of more than 1.5 MiB.
MOST_BYTES: Final = 1_572_864
MANY: Final = 10_000
LONG: Final = 1_000_000
_DEEP: Final = (3, 10, 60)
_DEEPEST: Final = 100_000
_MOST_MUTATIONS: Final = 4
# Of ten thousand entries, which take a hundred times as long as others to make and to read: seldom enough.
_HUGE_EVERY: Final = 12
_TEXT_EVERY: Final = 16
# Most of what is wrong is where somebody looks.
_LOOKED_AT: Final = 0.8
# Of another type it is refused at once, as a rule: nothing more is seen of what is read.
_OTHER_TYPE: Final = 0.3
# Stands for what follows, bare, in the text.
_BARE: Final = "\u00a7bare:"

NUMBERS: Final[Sequence[Json]] = (
    *(0, 1, -1, 2, 7, 64, 65_535, 65_536, 10**6, 2**31 - 1, 2**31, -(2**31) - 1, 2**53 + 1, 2**63 - 1, 2**63, 2**64),
    *(-(2**63), 10**30, 0.5, -0.0, 1e-9, 1.0, 1e18, 1e308),
    *(f"{_BARE}{bare}" for bare in ("1e1000", "-1e1000", "NaN", "Infinity", "1E400", "01", "0x10", "1_000", "+1")),
    *(f"{_BARE}{'9' * 400}", f"{_BARE}0.{'0' * 300}1"),
)
QUANTITIES: Final = (
    *("0", "1", "-1", "4", "100m", "1500m", "0.5", "1e3", "1e1000", "1E-1000", "1e-3", "1Gi", "1Ki", "9Ei", "10Ei"),
    *("9223372036854775807", "9223372036854775808", "-9223372036854775809", "1.1.1", "1gi", "1GiB", "1 Gi", " 1", "1n"),
    *("1u", "1EiEi", "+5", "--5", "0x10", "1e", "e1", ".", ".5", "5.", "NaN", "Inf", "-0", "١٢", "1\u00a0000", "1k"),
    *("9" * 400, "0." + "0" * 300 + "1", "1e9999999999", "-1e9999999999", "1Mi ", "true", "null", "1,5"),
)
TEXTS: Final = (
    *("", " ", "\0", "\n", "\t", "\r\n", "a\nb", "..", "/", "a/b/c", "a" * 64, "a" * 254, "A", "ünïcode", "日本", "😀"),
    *("\u202eabc", "\ufeff", "\ud800", "\x1b[31mred", "%s%n{}{0}", "${HOME}", "$(id)", "'\"<>&", "null", "None", "{}"),
    *("*", "default", "kube-system", "Always", "Exists", "DoesNotExist", "In", "NotIn", "Gt", "Lt", "NoSchedule", "-"),
    *("DoNotSchedule", "NoExecute", "Honor", "Never", "UDP", "0.0.0.0", "::", "metadata.name", "gpushare-scheduler"),  # noqa: S104 - a host IP
    *("2026-01-01T00:00:00Z", "0001-01-01T00:00:00Z", "9999-12-31T23:59:59.999999999Z", "2026-13-45T99:99:99Z"),
    *("kubernetes.io/hostname", "zone", "app", "spread", "binpack", "healthy", "unhealthy", "a in (b", "a,,b", "!a"),
)


@dataclass(frozen=True, slots=True)
class Place:
    """Where a value is: holder[key] is it. path: from the document on, with 0 for the index of every list."""

    holder: Any
    key: Any
    path: Path = ()

    @property
    def value(self) -> Json:
        return self.holder[self.key]

    def put(self, value: Json) -> None:
        self.holder[self.key] = value


class Mutator:
    """Makes cases of one kind of document. words: texts of the corpus, keys: of its mappings, all of them."""

    def __init__(self, documents: Sequence[Json], read: Callable[[bytes], object] = bytes) -> None:
        """read: what the program makes of a document, so that those places are found which it looks at."""
        places = [place for document in documents for place in _places([document], [])]
        self._looked_at = {path for document in documents for path in _looked_at(document, read)}
        self._subtrees = [copy.deepcopy(place.value) for place in places]
        self.words = sorted({value for value in self._subtrees if isinstance(value, str) and len(value) < 100})
        self.keys = sorted({place.key for place in places if isinstance(place.key, str)})

    def mutated(self, document: Json, rng: random.Random) -> Json:
        """A document with some things wrong; of values that `text` writes."""
        found = [copy.deepcopy(document)]
        for _ in range(min(_MOST_MUTATIONS, 1 + int(rng.expovariate(1.0)))):
            self._mutate(found, rng)
        return found[0]

    def text(self, document: Json, rng: random.Random, finish: Callable[[Json], Json] = lambda found: found) -> bytes:
        """A case as it comes over the wire: at most MOST_BYTES long, as a rule still JSON.

        finish: what else becomes of the document, before its text may be damaged.
        """
        found = encoded(finish(self.mutated(document, rng)))
        if rng.randrange(_TEXT_EVERY) == 0:
            found = _damaged(found, rng)
        return found if len(found) <= MOST_BYTES else encoded(finish(copy.deepcopy(document)))

    def _mutate(self, found: list[Json], rng: random.Random) -> None:
        embedded: list[tuple[Place, Json]] = []
        places = _places(found, embedded)
        if rng.random() < _LOOKED_AT:
            places = [place for place in places if place.path in self._looked_at] or places
        place = rng.choice(places)
        rng.choice(self._operations(place.value, rng))(place, rng)
        for outer, inner in embedded:
            # A document in a text that was itself replaced or removed stays as it is now.
            if _still_there(outer):
                outer.put(encoded(inner[0]).decode(errors="replace"))

    def _operations(self, value: Json, rng: random.Random) -> list[Callable[[Place, random.Random], None]]:
        """What can be done to a value of this type."""
        huge = rng.randrange(_HUGE_EVERY) == 0
        if rng.random() < _OTHER_TYPE:
            return [self._scalar, self._subtree, self._nothing, self._removed, self._nested]
        match value:
            case dict():
                return [self._many_keys] if huge else [self._more_keys, self._more_keys, self._removed]
            case list():
                return [self._many_items] if huge else [self._twice, self._twice, self._removed]
            case str():
                return [self._long] if huge else [self._other_text, self._quantity]
        return [self._number]

    def _scalar(self, place: Place, rng: random.Random) -> None:
        place.put(rng.choice([*rng.sample(NUMBERS, 2), *rng.sample(TEXTS, 2), True, False, rng.choice(self.words)]))

    def _number(self, place: Place, rng: random.Random) -> None:
        place.put(rng.choice(NUMBERS))

    def _quantity(self, place: Place, rng: random.Random) -> None:
        place.put(rng.choice(QUANTITIES))

    def _other_text(self, place: Place, rng: random.Random) -> None:
        place.put(rng.choice(rng.choice([TEXTS, self.words])))

    def _long(self, place: Place, rng: random.Random) -> None:
        place.put((rng.choice(TEXTS) or "x") * 3 + "x" * LONG)

    def _subtree(self, place: Place, rng: random.Random) -> None:
        place.put(copy.deepcopy(rng.choice(self._subtrees)))

    def _nothing(self, place: Place, rng: random.Random) -> None:
        place.put(rng.choice([None, {}, [], ""]))

    def _removed(self, place: Place, _rng: random.Random) -> None:
        del place.holder[place.key]
        if not place.holder and isinstance(place.holder, list):
            place.holder.append(None)

    def _nested(self, place: Place, rng: random.Random) -> None:
        for _ in range(rng.choice(_DEEP)):
            place.put([place.value] if rng.random() < 0.5 else {rng.choice(self.keys): place.value})

    def _twice(self, place: Place, rng: random.Random) -> None:
        place.value.extend(copy.deepcopy(place.value[: rng.randint(1, 3)]))

    def _more_keys(self, place: Place, rng: random.Random) -> None:
        for _ in range(rng.randint(1, 3)):
            place.value[rng.choice([*rng.sample(TEXTS, 1), *rng.choices(self.keys, k=4)])] = copy.deepcopy(
                rng.choice(self._subtrees)
            )

    def _many_items(self, place: Place, rng: random.Random) -> None:
        item = rng.choice(place.value) if place.value else rng.choice(self._subtrees)
        fits = MOST_BYTES // (2 * len(encoded(item)) + 20)
        items = [copy.deepcopy(item) for _ in range(min(MANY, fits))]
        if rng.random() < 0.7:
            items = [_numbered(one, number) for number, one in enumerate(items)]
        place.value.extend(items)

    def _many_keys(self, place: Place, rng: random.Random) -> None:
        value = rng.choice(list(place.value.values())) if place.value else "x"
        fits = MOST_BYTES // (2 * len(encoded(value)) + 30)
        place.value.update({f"example.com/k{number}": value for number in range(min(MANY, fits))})


def encoded(document: Json) -> bytes:
    """As JSON; what stands for something bare is bare in it."""
    text = json.dumps(document, ensure_ascii=True, separators=(",", ":"), default=str)
    pieces = text.split(f'"{json.dumps(_BARE)[1:-1]}')
    for number, piece in enumerate(pieces[1:], start=1):
        bare, _, rest = piece.partition('"')
        pieces[number] = bare + rest
    return "".join(pieces).encode()


def _places(found: list[Json], embedded: list[tuple[Place, Json]]) -> list[Place]:
    """Every value of found[0], and of the documents in its texts, which go to `embedded`, decoded in a list of one."""
    places, waiting = [], [Place(found, 0)]
    while waiting:
        place = waiting.pop()
        places.append(place)
        value = place.value
        if isinstance(value, str) and value[:1] in {"{", "["}:
            try:
                inner = [json.loads(value)]
            except (ValueError, RecursionError):
                continue
            embedded.append((place, inner))
            waiting.append(Place(inner, 0, (*place.path, "")))
        elif isinstance(value, dict):
            waiting.extend(Place(value, key, (*place.path, key)) for key in value)
        elif isinstance(value, list):
            # Of ten thousand items that are there already, a few are enough.
            waiting.extend(Place(value, index, (*place.path, 0)) for index in range(min(len(value), 50)))
    return places


def _looked_at(document: Json, read: Callable[[bytes], object]) -> set[Path]:
    """The places where another value makes a difference, those in texts included wherever the text does."""
    before, found = read(encoded(document)), set()
    for place in _places([document], []):
        value = place.value
        place.put(["other"])
        try:
            if place.path and read(encoded(document)) != before:
                found.add(place.path)
        except Exception:  # noqa: BLE001 - of whatever kind: it makes a difference
            found.add(place.path)
        place.put(value)
        if place.path[:-1] in found and "" in place.path:
            found.add(place.path)
    return found


def _still_there(place: Place) -> bool:
    try:
        return isinstance(place.value, str) and place.value[:1] in {"{", "["}
    except (KeyError, IndexError):
        return False


def _numbered(value: Json, number: int) -> Json:
    """The same with another text in it."""
    match value:
        case str():
            return f"{value}{number}"
        case dict() if value:
            key = next(iter(value))
            return {**value, key: _numbered(value[key], number)}
        case list() if value:
            return [_numbered(value[0], number), *value[1:]]
    return value


def _damaged(text: bytes, rng: random.Random) -> bytes:
    """The text with something wrong that no document can say."""
    at = rng.randrange(len(text))
    match rng.randrange(6):
        case 0:
            return text[:at]
        case 1:
            return text[:at] + bytes([rng.randrange(256)]) + text[at + 1 :]
        case 2:
            return text[:at] + b"\xff\xfe" + text[at:]
        case 3:
            return text.replace(b'{"', b'{"metadata":{},"metadata":null,"', 1)
        case 4:
            return b"[" * _DEEPEST + text
    return text[:at] + b'{"a":' * 1000 + b"1" + b"}" * 1000 + text[at:]
