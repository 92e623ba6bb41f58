"""Pods that hold GPU memory: how much, on which cards, whether the limit is enforced, and how much they use. Pure."""

from collections.abc import Callable, Iterator, Mapping
from typing import Final

import msgspec

from config.protocol.isolation import ADVISORY
from scheduler.pods.pod import Pod
from scheduler.process.terminal import columns
from scheduler.state.pod_record import PodRecord
from scheduler.state.tables import Tables
from scheduler.tools.explain.answers import Answer
from scheduler.tools.explain.pod_summary import cards_of
from scheduler.tools.explain.reading import ClusterSnapshot
from scheduler.tools.explain.tones import Line, Tone

NONE: Final = "none"
_HEAD: Final = ("NAME", "NODE", "CARDS", "REQUESTED", "LIMIT", "ISOLATION", "USED", "STATE")
_WIDE: Final = ("SCHEDULER", "UUIDS")
_PENDING: Final = "pending"
_GONE: Final = "gone"
_NOWHERE: Final = "-"


class HoldingPod(Answer, frozen=True):
    """A pod that holds memory. cards: index to units, empty while unknown. uuids: UUIDs of these cards, in order.

    isolation: kinds that enforce its share on its cards, comma-separated, `none` where its request is only counted, ""
    if unknown. limit_units: units that it may use while they are free; None for no more than its request.
    used_mib: memory that its containers use; None if unknown. state: `running`, `terminating` or `unknown card`; or
    `pending`, for a pod without a node; or `gone`, for one that a watch has just seen end.
    """

    namespace: str
    name: str
    node: str
    units: int
    cards: dict[int, int]
    uuids: tuple[str, ...]
    exclusive: bool
    scheduler: str
    state: str
    isolation: str = ""
    used_mib: int | None = msgspec.field(default=None, name="usedMiB")
    limit_units: int | None = None


class HoldingPods(Answer, frozen=True):
    """Pods that hold memory, in order of namespace and name until sorted otherwise. unit_mib: MiB in a unit.

    waiting: pods without a node, which request memory and hold none.
    """

    unit_mib: int = msgspec.field(name="unitMiB")
    pods: tuple[HoldingPod, ...] = ()
    waiting: tuple[HoldingPod, ...] = ()


def holding_pods(reading: ClusterSnapshot, chosen: Callable[[Pod, str], bool]) -> HoldingPods:
    """Return the chosen pods that hold memory."""
    tables = reading.engine.tables
    held = (record for record in tables.records() if record.written.units and not record.nominated)
    found = [_holding(tables, record) for record in held if chosen(record.pod, record.node)]
    waiting = [_waiting(pod) for pod in _without_a_node(reading) if chosen(pod, "")]
    return HoldingPods(
        unit_mib=reading.unit_mib, pods=tuple(sorted(found, key=by_name)), waiting=tuple(sorted(waiting, key=by_name))
    )


def _without_a_node(reading: ClusterSnapshot) -> Iterator[Pod]:
    ours = (entry.pod for entry in reading.engine.queue)
    yield from (pod for pod in ours if pod.template.gpu_units or pod.template.gpu_request_error)
    yield from reading.of_others.values()


def by_name(pod: HoldingPod) -> tuple[str, str]:
    """Return the sort key: namespace and name."""
    return pod.namespace, pod.name


def _waiting(pod: Pod) -> HoldingPod:
    request = pod.template.gpu_request
    return HoldingPod(
        namespace=pod.key.namespace,
        name=pod.key.name,
        node="",
        units=pod.template.gpu_units,
        cards={},
        uuids=(),
        exclusive=request is not None and request.exclusive,
        scheduler=pod.scheduler_name,
        state=_PENDING,
        limit_units=None if request is None else request.limit_units,
    )


def gone(pod: HoldingPod) -> HoldingPod:
    """Return the pod in the state `gone`."""
    return msgspec.structs.replace(pod, state=_GONE)


def _holding(tables: Tables, record: PodRecord) -> HoldingPod:
    cards, request = cards_of(tables, record), record.pod.template.gpu_request
    row = tables.row_of.get(record.node)
    there = {} if row is None else {slot.card.index: slot.card for slot in tables.cards.slots[row]}
    kinds = {there[index].isolation or NONE for index in cards}
    terminating = "terminating" if record.pod.terminating else "running"
    return HoldingPod(
        namespace=record.pod.key.namespace,
        name=record.pod.key.name,
        node=record.node,
        units=sum(cards.values()) or record.written.units,
        cards=dict(sorted(cards.items())),
        uuids=tuple(there[index].uuid for index in sorted(cards)),
        exclusive=record.exclusive,
        scheduler=record.pod.scheduler_name,
        state=terminating if cards else "unknown card",
        isolation=",".join(sorted(kinds)) if kinds != {NONE} else "",
        limit_units=None if request is None else request.limit_units,
    )


def reported(found: HoldingPods, isolation: Mapping[str, str], used_mib: Mapping[tuple[str, str], int]) -> HoldingPods:
    """Add the reports of the pods' nodes. isolation: by node; used_mib: by namespace and name.

    The inventory comes first: plugins of older versions do not say in it what they enforce.
    """
    pods = tuple(
        msgspec.structs.replace(
            pod,
            isolation=pod.isolation or isolation.get(pod.node, ""),
            used_mib=used_mib.get((pod.namespace, pod.name)),
        )
        for pod in found.pods
    )
    return msgspec.structs.replace(found, pods=pods)


_KEYS: Final[Mapping[str, Callable[[HoldingPod], int]]] = {
    "name": lambda _: 0,
    "requested": lambda pod: -pod.units,
    "used": lambda pod: -(pod.used_mib or 0),
}


def pods_by(found: HoldingPods, key: str) -> HoldingPods:
    """Return the pods sorted by `key`: `name`, `requested` or `used`."""
    by = _KEYS[key]
    return msgspec.structs.replace(
        found, pods=tuple(sorted(found.pods, key=by)), waiting=tuple(sorted(found.waiting, key=by))
    )


def pod_lines(found: HoldingPods, *, wide: bool = False, namespaces: bool = False) -> Iterator[Line]:
    """Yield a header, and a line for each pod; waiting pods come last. namespaces: whether to show that column."""
    pods = (*found.pods, *found.waiting)
    head = (*(("NAMESPACE",) if namespaces else ()), *_HEAD, *(_WIDE if wide else ()))
    rows = [_row(pod, found.unit_mib, wide=wide, namespaces=namespaces) for pod in pods]
    tones = [_tone(pod, found.unit_mib) for pod in pods]
    first = int(namespaces)
    texts = columns(head, rows, right=(first + 3, first + 4, first + 6))
    return (Line(text, tone) for text, tone in zip(texts, (Tone.HEAD, *tones), strict=True))


def _tone(pod: HoldingPod, unit_mib: int) -> Tone:
    if pod.state == "unknown card":
        return Tone.BAD
    uses_more = (pod.used_mib or 0) > (pod.limit_units or pod.units) * unit_mib
    return Tone.WARNING if uses_more or pod.state == _PENDING else Tone.PLAIN


def _row(pod: HoldingPod, unit_mib: int, *, wide: bool, namespaces: bool) -> tuple[str, ...]:
    cards = ",".join(f"{index} ({units})" for index, units in pod.cards.items()) or ("?" if pod.node else _NOWHERE)
    used = "-" if pod.used_mib is None else f"{pod.used_mib} MiB"
    limit = _NOWHERE if pod.limit_units is None else amount(pod.limit_units, unit_mib)
    kinds = _kinds(pod.isolation) if pod.node else _NOWHERE
    row = (pod.name, pod.node or _NOWHERE, cards, amount(pod.units, unit_mib), limit, kinds, used, pod.state)
    extra = (pod.scheduler, ",".join(pod.uuids) or "-") if wide else ()
    return (*((pod.namespace,) if namespaces else ()), *row, *extra)


def _kinds(isolation: str) -> str:
    return ",".join(ADVISORY if kind == NONE else kind for kind in isolation.split(",")) if isolation else "unknown"


def amount(units: int, unit_mib: int) -> str:
    """Return text such as `8 GiB` or `300 MiB`."""
    mib = units * unit_mib
    return f"{mib // 1024} GiB" if mib % 1024 == 0 else f"{mib} MiB"


def names_of(found: HoldingPods) -> Iterator[str]:
    """Yield `pod/NAME` for each pod, like kubectl."""
    return (f"pod/{pod.name}" for pod in (*found.pods, *found.waiting))
