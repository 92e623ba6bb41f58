"""Nodes and pods of the API server, with only the fields that `kubectl inspect gpushare` reads. Pure.

It does not use `scheduler.kube.objects`, which lacks addresses, rejects nulls that this module accepts, and decodes a
hundred unused fields. The items of a list are decoded separately, so that a malformed item costs only one object.
"""

import re
from collections.abc import Sequence
from typing import Final, TypeAlias, TypeVar

import msgspec

from config.protocol.shallow import decoded

_Quantities: TypeAlias = dict[str, str | int | float]

# msgspec's errors: invalid UTF-8 and endless nesting are not a DecodeError.
MALFORMED: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


# Names of pods, nodes and namespaces: RFC 1123 subdomains. Other text would result in another request.
_NAME: Final = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")


def is_name(text: str) -> bool:
    """Return whether an object may have this name."""
    return _NAME.fullmatch(text) is not None


class _Wire(msgspec.Struct, rename="camel", frozen=True):
    """Wire data. A null list, Go's form of an empty one, is None."""


class _Metadata(_Wire, frozen=True):
    name: str
    namespace: str = ""
    uid: str = ""
    annotations: dict[str, str] | None = None


class _Address(_Wire, frozen=True):
    """An address. type: InternalIP is the one that is shown."""

    type: str = ""
    address: str = ""


class _NodeStatus(_Wire, frozen=True):
    allocatable: _Quantities | None = None
    addresses: tuple[_Address, ...] | None = None


class _NodeSpec(_Wire, frozen=True):
    unschedulable: bool | None = None


class ListedNode(_Wire, frozen=True):
    """v1.Node."""

    metadata: _Metadata
    status: _NodeStatus = _NodeStatus()
    spec: _NodeSpec | None = None


class _Resources(_Wire, frozen=True):
    limits: _Quantities | None = None


class _Container(_Wire, frozen=True):
    resources: _Resources = _Resources()


class _PodSpec(_Wire, frozen=True):
    node_name: str = ""
    containers: tuple[_Container, ...] | None = None


class _PodStatus(_Wire, frozen=True):
    phase: str = ""


class ListedPod(_Wire, frozen=True):
    """v1.Pod."""

    metadata: _Metadata
    spec: _PodSpec = _PodSpec()
    status: _PodStatus = _PodStatus()


class _ListMeta(_Wire, frozen=True):
    # `continue` is a keyword
    rest: str = msgspec.field(default="", name="continue")


class RawPage(_Wire, frozen=True):
    """Answer to a list request, with raw items. metadata.rest: token for the next page, "" at the end."""

    items: tuple[msgspec.Raw, ...] | None = None
    metadata: _ListMeta = _ListMeta()


class _Name(_Wire, frozen=True):
    name: str = ""
    namespace: str = ""


class _Named(_Wire, frozen=True):
    metadata: _Name = _Name()


_NAMED: Final = msgspec.json.Decoder(_Named)

T = TypeVar("T", ListedNode, ListedPod)
_KINDS: Final = {ListedNode: "node", ListedPod: "pod"}


def read(items: Sequence[msgspec.Raw], kind: type[T]) -> tuple[list[T], list[str]]:
    """Return the readable objects, and a line for each unreadable one."""
    decode, objects, problems = msgspec.json.Decoder(kind).decode, list[T](), list[str]()
    for item in items:
        try:
            objects.append(decoded(decode, item))
        except MALFORMED as error:
            problems.append(f"{_KINDS[kind]} {_name(item)} is left out: {error}")
    return objects, problems


def _name(item: msgspec.Raw) -> str:
    try:
        named = decoded(_NAMED.decode, item).metadata
    except MALFORMED:
        return "without a name"
    return "/".join(part for part in (named.namespace, named.name) if part) or "without a name"
