"""Events from lines of a watch and items of a list. Each object is decoded alone, so that a bad one costs one object.

No field of an object is raw: a raw view would keep the whole line, or a page of 500 objects, in memory as long as the
object exists.
"""

from http import HTTPStatus
from typing import Final, Generic

import msgspec

from config.protocol.shallow import decoded
from scheduler.kube import objects, port
from scheduler.kube.port import Kind, T, WatchEvent
from scheduler.kube.rest.failures import MALFORMED, ApiStatus, error_from_event, not_an_answer

_INITIAL_EVENTS_END: Final = "k8s.io/initial-events-end"


class _ListMeta(msgspec.Struct, rename="camel"):
    resource_version: str = ""
    # `continue` is a keyword
    rest: str = msgspec.field(default="", name="continue")


class Page(msgspec.Struct):
    """One page of a list. metadata.rest: token for the next page, "" at the end."""

    metadata: _ListMeta
    items: list[msgspec.Raw] | None = None


class _Line(msgspec.Struct, Generic[T]):
    type: str
    object: T


class _UnreadLine(msgspec.Struct):
    type: str
    object: msgspec.Raw


class _BookmarkMeta(msgspec.Struct, rename="camel"):
    resource_version: str
    annotations: dict[str, str] | None = None


class _Bookmark(msgspec.Struct):
    metadata: _BookmarkMeta


class _Named(msgspec.Struct):
    name: str = ""
    namespace: str = ""


class _WithName(msgspec.Struct):
    metadata: _Named


class _WithMetadata(msgspec.Struct):
    metadata: objects.ObjectMeta


_PAGE: Final = msgspec.json.Decoder(Page)
_UNREAD_LINE: Final = msgspec.json.Decoder(_UnreadLine)
_BOOKMARK: Final = msgspec.json.Decoder(_Bookmark)
_STATUS: Final = msgspec.json.Decoder(ApiStatus)
_WITH_NAME: Final = msgspec.json.Decoder(_WithName)
_WITH_METADATA: Final = msgspec.json.Decoder(_WithMetadata)


def page(body: bytes) -> Page:
    """Decode the frame of a list, with its items still raw. Raises ApiFailed."""
    try:
        return decoded(_PAGE.decode, body)
    except MALFORMED as error:
        raise port.ApiFailed(f"the list that the server sent cannot be decoded: {error}") from error


class Decoder(Generic[T]):
    """Decoder for the objects of one kind."""

    def __init__(self, kind: Kind[T]) -> None:
        self._type: type[T] = kind.type
        self._object: msgspec.json.Decoder[T] = msgspec.json.Decoder(kind.type)
        self._line: msgspec.json.Decoder[_Line[T]] = msgspec.json.Decoder(_Line[kind.type])  # type: ignore[name-defined]

    def object(self, body: bytes) -> T:
        """Decode one object. Raises ApiFailed."""
        try:
            return decoded(self._object.decode, body)
        except MALFORMED as error:
            raise port.ApiFailed(f"the object that the server sent cannot be decoded: {error}") from error

    def listed(self, item: msgspec.Raw) -> WatchEvent[T]:
        """Decode one item of a list: Changed or Undecodable."""
        try:
            return port.Changed(decoded(self._object.decode, item))
        except MALFORMED as error:
            return port.Undecodable(_name(item), str(error))

    def watched(self, line: bytes) -> WatchEvent[T]:
        """Decode one line of a watch. The bookmark that closes a streamed list becomes ListEnds.

        Raises the ApiError of an ERROR event, ApiSilent for a line that no API server sends in a watch.
        """
        try:
            known = decoded(self._line.decode, line)
        except MALFORMED as error:
            return self._otherwise(line, str(error).replace("$.object", "$"))
        if known.type in {"ADDED", "MODIFIED"}:
            return port.Changed(known.object)
        if known.type == "DELETED":
            return port.Deleted(known.object)
        return self._otherwise(line, f"unknown watch event {known.type}")

    def _otherwise(self, line: bytes, problem: str) -> WatchEvent[T]:
        """Decode any other line: a bookmark (without a name), a metav1.Status, or a malformed object."""
        try:
            unread = decoded(_UNREAD_LINE.decode, line)
        except msgspec.ValidationError as error:
            # The object in it is not examined: the line itself is not a watch event.
            raise not_an_answer(HTTPStatus.OK, line) from error
        except MALFORMED as error:
            return port.Undecodable("", str(error))
        try:
            if unread.type == "BOOKMARK":
                return _bookmark(decoded(_BOOKMARK.decode, unread.object))
            if unread.type == "ERROR":
                raise error_from_event(decoded(_STATUS.decode, unread.object))
        except MALFORMED as error:
            return port.Undecodable("", str(error))
        if unread.type == "DELETED":
            return self._gone(unread.object, problem)
        return port.Undecodable(_name(unread.object), problem)

    def _gone(self, item: msgspec.Raw, problem: str) -> WatchEvent[T]:
        """Decode a malformed object that was deleted: its deletion matters, and its metadata names it."""
        try:
            return port.Deleted(self._type(metadata=decoded(_WITH_METADATA.decode, item).metadata))
        except MALFORMED:
            return port.Undecodable(_name(item), problem)


def _bookmark(bookmark: _Bookmark) -> port.Bookmark | port.ListEnds:
    version = bookmark.metadata.resource_version
    if (bookmark.metadata.annotations or {}).get(_INITIAL_EVENTS_END) == "true":
        return port.ListEnds(version)
    return port.Bookmark(version)


def _name(item: msgspec.Raw) -> str:
    try:
        named = decoded(_WITH_NAME.decode, item).metadata
    except MALFORMED:
        return ""
    return f"{named.namespace}/{named.name}" if named.namespace else named.name
