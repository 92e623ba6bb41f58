"""Nodes and pods as an API server lists them, naming only the fields that `kubectl inspect gpushare` reads. Pure.

The items of a list are decoded one by one, so that a malformed one costs one object.
"""

from collections.abc import Sequence
from typing import Final, TypeAlias, TypeVar

import msgspec

Quantities: TypeAlias = dict[str, str | int | float]

# What msgspec raises: bytes that are no UTF-8 and nesting without end are no DecodeError.
MALFORMED: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class _Wire(msgspec.Struct, rename="camel", frozen=True):
    """A list that is null, as Go writes an empty one, is None."""


class Metadata(_Wire, frozen=True):
    """The head of an object."""

    name: str
    namespace: str = ""
    uid: str = ""
    annotations: dict[str, str] | None = None


class Address(_Wire, frozen=True):
    """One address of a node. type: InternalIP is the one that is shown."""

    type: str = ""
    address: str = ""


class NodeStatus(_Wire, frozen=True):
    """What a node offers, and where it is."""

    allocatable: Quantities | None = None
    addresses: tuple[Address, ...] | None = None


class Node(_Wire, frozen=True):
    """v1.Node."""

    metadata: Metadata
    status: NodeStatus = NodeStatus()


class Resources(_Wire, frozen=True):
    """What a container may use."""

    limits: Quantities | None = None


class Container(_Wire, frozen=True):
    """One container."""

    resources: Resources = Resources()


class PodSpec(_Wire, frozen=True):
    """Where a pod is, and what it asks."""

    node_name: str = ""
    containers: tuple[Container, ...] | None = None


class PodStatus(_Wire, frozen=True):
    """phase: Pending, Running, Succeeded, Failed or Unknown."""

    phase: str = ""


class Pod(_Wire, frozen=True):
    """v1.Pod."""

    metadata: Metadata
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()


class _ListMeta(_Wire, frozen=True):
    # `continue` is a keyword
    rest: str = msgspec.field(default="", name="continue")


class Page(_Wire, frozen=True):
    """One answer to a list request, its items still raw. metadata.rest: token for the next page, "" at the end."""

    items: tuple[msgspec.Raw, ...] | None = None
    metadata: _ListMeta = _ListMeta()


class _Status(_Wire, frozen=True):
    message: str = ""


class _Name(_Wire, frozen=True):
    name: str = ""
    namespace: str = ""


class _Named(_Wire, frozen=True):
    metadata: _Name = _Name()


T = TypeVar("T", Node, Pod)


def read(items: Sequence[msgspec.Raw], kind: type[T]) -> tuple[list[T], list[str]]:
    """The objects that can be read, and a line for each that cannot."""
    decode, objects, problems = msgspec.json.Decoder(kind).decode, list[T](), list[str]()
    for item in items:
        try:
            objects.append(decode(item))
        except MALFORMED as error:
            problems.append(f"{kind.__name__.lower()} {_name(item)} is left out: {error}")
    return objects, problems


def refusal(body: bytes) -> str:
    """The API server's own words in an answer that is no success; "" when a proxy wrote it, or nobody."""
    try:
        return msgspec.json.decode(body, type=_Status).message
    except MALFORMED:
        return ""


def _name(item: msgspec.Raw) -> str:
    try:
        named = msgspec.json.decode(item, type=_Named).metadata
    except MALFORMED:
        return "without a name"
    return "/".join(part for part in (named.namespace, named.name) if part) or "without a name"
