"""GPU request of a pod, read from its containers, labels and annotations. Pure.

The forms are described in docs/develop/protocol.md, "Requests". An invalid request is a `GpuRequestError`; the pod
shows its message.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, TypeVar

from config.protocol import memory_limit, names, quantity
from scheduler.kube.objects import Container, PodObject
from scheduler.pods.effective_requests import MOST, combined, is_sidecar

_MOST_CARDS: Final = 256
_LARGEST_ASK: Final = 2**31 - 1
_GIB: Final = 1024
# 64 TiB: a request this large was written in bytes.
_NO_CARD_HAS_MIB: Final = 1 << 26
_BYTES: Final = ("Mi", "Gi", "Ti", "Pi", "Ei")
_LONGEST_SHOWN: Final = 32
_DIGITS_OF_UNITS: Final = 4
_Choice = TypeVar("_Choice", bound=StrEnum)
# Traits of a card, as bits. ENFORCED: something enforces each pod's share of its memory. WHOLE: not a MIG instance.
# BY_MPS: programs share its processors through MPS. BY_TURNS: they take turns, as without MPS.
ENFORCED: Final = 1
WHOLE: Final = 2
BY_MPS: Final = 4
BY_TURNS: Final = 8


class GpuRequestError(ValueError):
    """A request that is invalid or that no cluster can meet. The message names the key and the expected value."""


class ComputeMode(StrEnum):
    """How programs share the processors of a card."""

    MPS = "mps"
    TIME_SLICING = "time-slicing"


class PlacementPolicy(StrEnum):
    """Placement policy: BINPACK fills cards in use first, SPREAD the emptiest ones.

    FRAGMENTATION takes the memory that is least useful for typical pods.
    """

    BINPACK = "binpack"
    SPREAD = "spread"
    FRAGMENTATION = "fragmentation"


@dataclass(frozen=True, slots=True)
class Selection:
    """Names that a comma-separated list allows. wanted: any of these; all if empty. excluded: those with a `!`."""

    wanted: frozenset[str] = frozenset()
    excluded: frozenset[str] = frozenset()

    def __bool__(self) -> bool:
        """Return whether it restricts anything."""
        return bool(self.wanted or self.excluded)

    def accepts(self, name: str) -> bool:
        """Return whether `name` may be taken."""
        return name not in self.excluded and (not self.wanted or name in self.wanted)


_NO_NAMES: Final[frozenset[str]] = frozenset()
_ALL: Final = Selection()


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuRequest:
    """GPU memory of one pod, in units.

    cards: number of different cards, all on one node, >= 1.
    units_per_card: units on each card by the container formula, >= 1.
    containers, init_containers: units of each container on **one** card; 0 if it requests none.
    isolated: only cards on which something enforces the pod's share of memory.
    compute_mode: only cards whose processors are shared in this way; None for any.
    limit_units: units over all cards that the pod may use while they are free; None for no more than its request.
    card_policy, node_policy: None for the policy of the profile.
    """

    cards: int
    units_per_card: int
    containers: tuple[int, ...]
    init_containers: tuple[int, ...]
    exclusive: bool = False
    models: Selection = Selection()
    uuids: Selection = Selection()
    isolated: bool = False
    compute_mode: ComputeMode | None = None
    limit_units: int | None = None
    card_policy: PlacementPolicy | None = None
    node_policy: PlacementPolicy | None = None

    @property
    def units(self) -> int:
        """Units over all cards: the pod's request for the node's `gpu-mem`."""
        return self.cards * self.units_per_card

    @property
    def traits(self) -> int:
        """Traits that each of its cards must have. Several MIG instances are no use: CUDA sees one per process."""
        compute = 0 if self.compute_mode is None else BY_MPS if self.compute_mode is ComputeMode.MPS else BY_TURNS
        return (ENFORCED if self.isolated else 0) | (WHOLE if self.cards > 1 else 0) | compute


@dataclass(frozen=True, slots=True)
class ResourceNames:
    """Configured names of resources and labels."""

    gpu_mem: str = names.GPU_MEM
    gpu_count: str = names.GPU_COUNT
    gpu_core: str = names.GPU_CORE


def labels_read(resources: ResourceNames) -> tuple[str, ...]:
    """Return the labels that `gpu_request_of` reads."""
    return (resources.gpu_count, names.PLACEMENT_LABEL)


def annotations_read(resources: ResourceNames) -> tuple[str, ...]:
    """Return the annotations that `gpu_request_of` reads."""
    return (
        *(resources.gpu_count, names.EXCLUSIVE),
        *(names.CARD_MODELS, names.CARD_UUIDS),
        *(names.CARD_POLICY, names.NODE_POLICY),
        *(names.ISOLATION, names.COMPUTE_MODE, names.GPU_MEM_LIMIT),
    )


def gpu_units(pod: PodObject, resource: str) -> int:
    """Return the pod's effective request for `resource` over all cards, whatever its annotations say; at most MOST."""
    return min(MOST, combined(pod.spec, lambda container: {resource: _limit(container, resource)}).get(resource, 0))


def unit_name(unit_mib: int) -> str:
    """Return `GiB`, `MiB` or text such as `units of 256 MiB`."""
    return {_GIB: "GiB", 1: "MiB"}.get(unit_mib, f"units of {unit_mib} MiB")


def gpu_request_of(pod: PodObject, resources: ResourceNames, unit_mib: int = 1024) -> GpuRequest | None:
    """Return the pod's GPU request; None without GPU memory. Raises GpuRequestError if it is invalid.

    unit_mib: MiB in one unit, for messages.
    """
    units = gpu_units(pod, resources.gpu_mem)
    annotations, labels = pod.metadata.annotations or {}, pod.metadata.labels or {}
    if units == 0:
        return None
    for container in (*pod.spec.containers, *pod.spec.init_containers):
        _refuse_bytes_and_fractions(container, resources.gpu_mem, unit_mib)
    if units > _LARGEST_ASK:
        raise GpuRequestError(f"{resources.gpu_mem}: requests {units} units; expected at most {_LARGEST_ASK}")
    cards = _count(resources.gpu_count, annotations.get(resources.gpu_count, labels.get(resources.gpu_count)))
    return GpuRequest(
        cards=cards,
        units_per_card=units // cards,
        containers=tuple(_share(c, resources.gpu_mem, cards) for c in pod.spec.containers),
        init_containers=tuple(_share(c, resources.gpu_mem, cards) for c in pod.spec.init_containers),
        exclusive=_exclusive(labels, annotations),
        models=_selection(names.CARD_MODELS, annotations),
        uuids=_selection(names.CARD_UUIDS, annotations),
        isolated=_isolated(annotations),
        compute_mode=_one_of(ComputeMode, names.COMPUTE_MODE, annotations),
        limit_units=_limit_units(pod, resources.gpu_mem),
        card_policy=_one_of(PlacementPolicy, names.CARD_POLICY, annotations),
        node_policy=_one_of(PlacementPolicy, names.NODE_POLICY, annotations),
    )


def sidecars(pod: PodObject) -> tuple[bool, ...]:
    """Return for each init container whether it is a sidecar."""
    return tuple(is_sidecar(container) for container in pod.spec.init_containers)


def _isolated(annotations: Mapping[str, str]) -> bool:
    text = annotations.get(names.ISOLATION)
    if text not in {None, names.ISOLATION_REQUIRED}:
        raise GpuRequestError(f"{names.ISOLATION}: {str(text)[:64]!r} is unknown; expected {names.ISOLATION_REQUIRED}")
    return text is not None


def _limit_units(pod: PodObject, resource: str) -> int | None:
    text = (pod.metadata.annotations or {}).get(names.GPU_MEM_LIMIT)
    if text is None:
        return None
    containers = (*pod.spec.containers, *pod.spec.init_containers)
    requests = {container.name: units for container in containers if (units := _limit(container, resource))}
    try:
        limits = memory_limit.limits(text, requests)
    except memory_limit.MemoryLimitError as error:
        raise GpuRequestError(f"{names.GPU_MEM_LIMIT}: {error}") from None
    return combined(pod.spec, lambda container: {resource: limits.get(container.name, 0)})[resource]


def _limit(container: Container, resource: str) -> int:
    return max(0, quantity.whole(_written(container, resource)))


def _written(container: Container, resource: str) -> str:
    """Return the quantity as written; `0` if there is none."""
    resources = container.resources
    if resources is None:
        return "0"
    return str((resources.limits or {}).get(resource, (resources.requests or {}).get(resource, 0)))


def _refuse_bytes_and_fractions(container: Container, resource: str, unit_mib: int) -> None:
    """Raise GpuRequestError for a number of bytes instead of units, or a fraction of a unit.

    The API server keeps binary suffixes but turns `16000` into `16k`, so a decimal suffix alone is not a mistake.
    """
    text = _written(container, resource)
    if len(text) <= _DIGITS_OF_UNITS and text.isascii() and text.isdigit():
        return
    units = max(0, quantity.whole(text))
    of, unit = f"{resource}: container {container.name} requests {text[:_LONGEST_SHOWN]}", unit_name(unit_mib)
    if units >= _NO_CARD_HAS_MIB // unit_mib or text.endswith(_BYTES):
        write = max(1, -(-units // (unit_mib << 20)))
        raise GpuRequestError(f"{of}, which is {units} units: units are {unit} here; write {write}")
    if quantity.milli(text) % 1000:
        raise GpuRequestError(f"{of}, not a whole number: units are whole {unit} here; write {units}")


def _share(container: Container, resource: str, cards: int) -> int:
    units = _limit(container, resource)
    if units % cards:
        raise GpuRequestError(
            f"{resource}: container {container.name} requests {units}, which is not divisible by "
            f"{names.GPU_COUNT} {cards}; expected a multiple of {cards}"
        )
    return units // cards


def _count(key: str, text: str | None) -> int:
    if text is None:
        return 1
    if not (text.isascii() and text.isdigit() and len(text) <= len(str(_MOST_CARDS)) and 1 <= int(text) <= _MOST_CARDS):
        raise GpuRequestError(f"{key}: {text[:64]!r} is not a number of cards; expected 1 to {_MOST_CARDS}")
    return int(text)


def _exclusive(labels: Mapping[str, str], annotations: Mapping[str, str]) -> bool:
    text = annotations.get(names.EXCLUSIVE)
    if text not in {None, "true", "false"}:
        raise GpuRequestError(f"{names.EXCLUSIVE}: {str(text)[:64]!r} is unknown; expected true or false")
    return text == "true" or labels.get(names.PLACEMENT_LABEL) == names.PLACEMENT_WHOLE_DEVICE


def _selection(key: str, annotations: Mapping[str, str]) -> Selection:
    text = annotations.get(key, "")
    if not text:
        return _ALL
    entries = [entry.strip() for entry in text.split(",") if entry.strip()]
    if len(entries) > _MOST_CARDS:
        raise GpuRequestError(f"{key}: has {len(entries)} entries; expected at most {_MOST_CARDS}")
    excluded = frozenset(entry[1:].strip() for entry in entries if entry.startswith("!"))
    wanted = frozenset(entry for entry in entries if not entry.startswith("!"))
    return Selection(wanted or _NO_NAMES, excluded or _NO_NAMES)


def _one_of(choice: type[_Choice], key: str, annotations: Mapping[str, str]) -> _Choice | None:
    text = annotations.get(key)
    if text is None:
        return None
    try:
        return choice(text)
    except ValueError:
        allowed = ", ".join(one.value for one in choice)
        raise GpuRequestError(f"{key}: {text[:64]!r} is unknown; expected one of: {allowed}") from None
