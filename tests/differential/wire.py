"""What the oracle says of a scenario, as it is kept: one file per group, JSON lines, compressed.

The first line of a file says which Kubernetes has answered. The objects are as the API server stores them: defaulted,
and with `matchLabelKeys` merged into the selectors.
"""

import lzma
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

import msgspec

RECORDED: Final = Path(__file__).parent / "recorded"
_SUFFIX: Final = ".jsonl.xz"


class _Kept(msgspec.Struct, rename="camel", frozen=True, omit_defaults=True):
    pass


class Verdict(_Kept, frozen=True):
    """The status of the first plugin that rejects a node. plugin: "" where PreFilter has left the node out."""

    plugin: str
    code: str
    reasons: tuple[str, ...] | None = None


class Scores(_Kept, frozen=True):
    """One plugin's scores of the feasible nodes, by node. normalized: 0..100."""

    raw: dict[str, int]
    normalized: dict[str, int]


class Candidate(_Kept, frozen=True):
    """A node where eviction would help. victims: namespace/name. violations: of disruption budgets."""

    victims: tuple[str, ...]
    violations: int


class Preemption(_Kept, frozen=True):
    """DefaultPreemption's dry run. chosen: one of the best candidates, "" when there is none; message: why not."""

    not_eligible: str = ""
    candidates: dict[str, Candidate] | None = None
    chosen: str = ""
    message: str = ""


class Answer(_Kept, frozen=True):
    """About one probe. invalid: the API server's own words; then there is nothing else.

    message: why the attempt found no node, without PostFilter's part; "" when it found one. pre_filter: what rejects
    the pod on every node. rejected: by node. scores: by plugin; none for a plugin that skips the pod.
    """

    invalid: str = ""
    message: str = ""
    pre_filter: Verdict | None = None
    rejected: dict[str, Verdict] = {}
    feasible: tuple[str, ...] = ()
    scores: dict[str, Scores] = {}
    preemption: Preemption | None = None


class Probe(_Kept, frozen=True):
    """pod: as stored; as written where the API server refuses it."""

    pod: msgspec.Raw
    answer: Answer


class Recorded(_Kept, frozen=True):
    """One scenario."""

    name: str
    objects: tuple[msgspec.Raw, ...]
    probes: tuple[Probe, ...]


class Oracle(_Kept, frozen=True):
    """Who has answered. feature_gates: those that are not as the release has them. asked: digest of the questions."""

    kubernetes: str
    go: str
    disabled_plugins: tuple[str, ...] = ()
    feature_gates: dict[str, bool] = {}
    asked: str = ""


def path_of(group: str) -> Path:
    """Where a group is kept."""
    return RECORDED / f"{group}{_SUFFIX}"


def read(group: str) -> tuple[Oracle, tuple[Recorded, ...]]:
    """What was recorded. FileNotFoundError: nothing was."""
    first, *lines = lzma.decompress(path_of(group).read_bytes()).splitlines()
    decoder = msgspec.json.Decoder(Recorded)
    return msgspec.json.decode(first, type=Oracle), tuple(decoder.decode(line) for line in lines)


def write(group: str, oracle: Oracle, scenarios: Iterable[Recorded]) -> int:
    """Keep a group; how many bytes that takes."""
    lines = b"\n".join(msgspec.json.encode(each) for each in (oracle, *scenarios))
    packed = lzma.compress(lines, preset=9 | lzma.PRESET_EXTREME)
    RECORDED.mkdir(exist_ok=True)
    path_of(group).write_bytes(packed)
    return len(packed)


def from_oracle(line: bytes, written: Sequence[object]) -> Recorded:
    """A line of the oracle's output. written: the probes, as they were sent."""
    printed = msgspec.json.decode(line, type=_Printed)
    answers = [
        (msgspec.json.decode(raw, type=Answer), msgspec.json.decode(raw, type=_Stored)) for raw in printed.answers
    ]
    probes = tuple(
        Probe(stored.stored or msgspec.Raw(msgspec.json.encode(pod)), answer)
        for (answer, stored), pod in zip(answers, written, strict=True)
    )
    return Recorded(printed.name, printed.objects, probes)


class _Stored(msgspec.Struct):
    stored: msgspec.Raw = msgspec.Raw(b"")


class _Printed(msgspec.Struct):
    name: str
    objects: tuple[msgspec.Raw, ...]
    answers: tuple[msgspec.Raw, ...]
