"""Turns unsuccessful answers into errors of `port`, and recognizes answers that are not from the API server.

Load balancers and proxies between us and the API server answer, too: an error page, a default backend's 404, a sign-in
page with 200. Only an API object decides about a request: a rejection is a metav1.Status, a success the request's
object. Any other answer counts as silence (`port.ApiSilent`). The one exception is 429: the API server writes it as
plain text, and a server that sends it has not executed the request.
Source: staging/src/k8s.io/apiserver/pkg/server/filters/maxinflight.go, tooManyRequests.
"""

import re
from collections.abc import Mapping
from http import HTTPStatus
from typing import Final

import msgspec

from scheduler.kube import port

_REFUSALS: Final[dict[int, type[port.ApiError]]] = {
    HTTPStatus.UNAUTHORIZED: port.ApiForbidden,
    HTTPStatus.FORBIDDEN: port.ApiForbidden,
    HTTPStatus.NOT_FOUND: port.ApiNotFound,
    HTTPStatus.CONFLICT: port.ApiConflict,
    HTTPStatus.GONE: port.WatchExpired,
}
_STATUS_KIND: Final = "Status"
_SUCCESS: Final = "Success"
_LONGEST_WAIT_S: Final = int(port.LONGEST_RETRY_AFTER_S)
_LONGEST_MESSAGE: Final = 1024
# Excerpt of another server's answer, long enough to recognize the server.
_LONGEST_EXCERPT: Final = 128
# A test backend may echo the request headers. Shorter matches are ordinary words: "basic authentication".
_CREDENTIALS: Final = re.compile(r"\b(Bearer|Basic)\s+[\w.~+/=-]{16,}", re.IGNORECASE)

# msgspec's errors for a malformed document, including invalid UTF-8 and endless nesting.
MALFORMED: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class _Details(msgspec.Struct, rename="camel"):
    retry_after_seconds: int = 0


class ApiStatus(msgspec.Struct):
    """metav1.Status, the body of every rejection and the object of an ERROR watch event. code: HTTP status."""

    kind: str = ""
    message: str = ""
    reason: str = ""
    code: int = 0
    details: _Details | None = None


class _Kind(msgspec.Struct):
    kind: str = ""


class _Outcome(_Kind):
    status: str = ""


_STATUS: Final = msgspec.json.Decoder(ApiStatus)
_KIND: Final = msgspec.json.Decoder(_Kind)
_OUTCOME: Final = msgspec.json.Decoder(_Outcome)


def error_from_answer(status: int, headers: Mapping[str, str], body: bytes) -> port.ApiError:
    """Error for an answer with a status of 300 or more. body: a metav1.Status, or a proxy's text."""
    if status == HTTPStatus.TOO_MANY_REQUESTS:
        return port.ApiThrottled(_message_of(body) or _phrase(status), _seconds(headers.get("Retry-After", "")))
    try:
        answer = _STATUS.decode(body)
    except MALFORMED:
        return not_an_answer(status, body)
    return _error(status, answer.message) if answer.kind == _STATUS_KIND else not_an_answer(status, body)


def error_from_event(status: ApiStatus) -> port.ApiError:
    """Error for an ERROR event inside a watch."""
    if status.code == HTTPStatus.TOO_MANY_REQUESTS:
        # Bounded as an integer, because a float cannot hold more than 308 digits.
        seconds = min(max(status.details.retry_after_seconds, 0), _LONGEST_WAIT_S) if status.details else 0
        return port.ApiThrottled(one_line(status.message) or _phrase(status.code), float(seconds))
    return _error(status.code, status.message)


def not_an_answer(status: int, body: bytes) -> port.ApiSilent:
    """Error for an answer that is not from the API server."""
    excerpt = one_line(body[: 4 * _LONGEST_EXCERPT].decode(errors="replace"), _LONGEST_EXCERPT) or "an empty body"
    return port.ApiSilent(f"not the API server's answer: {status} {_phrase(status)}: {excerpt}", status)


def expect_kind(kind: str, status: int, body: bytes) -> None:
    """Raise ApiSilent unless an answer below 300 is an object of this kind; a metav1.Status must be Success."""
    if kind == _STATUS_KIND:
        right = _says_success(body)
    else:
        # Spelled as kube-apiserver spells it, so that a page of 500 objects is not parsed twice.
        right = body.startswith(b'{"kind":"%s"' % kind.encode()) or _kind_of(body) == kind
    if not right:
        raise not_an_answer(status, body)


def one_line(text: str, longest: int = _LONGEST_MESSAGE) -> str:
    """The text in one line, safe for any log and terminal, with at most `longest` characters; cut with an ellipsis.

    A webhook's message may contain anything that its author, or the pod's author, put into it. Our credentials are
    removed, in case the message echoes them.
    """
    shown = "".join(c if c.isprintable() else " " for c in text[: 4 * longest])
    shown = _CREDENTIALS.sub(r"\1 …", " ".join(shown.split()))
    return shown if len(shown) <= longest else f"{shown[: longest - 1]}…"


def _error(status: int, message: str) -> port.ApiError:
    message = one_line(message) or _phrase(status)
    # Redirects are not followed: the API server has not executed the request.
    default = port.ApiRejected if HTTPStatus.MULTIPLE_CHOICES <= status < HTTPStatus.INTERNAL_SERVER_ERROR else None
    return _REFUSALS.get(status, default or port.ApiFailed)(message, status)


def _kind_of(body: bytes) -> str | None:
    try:
        return _KIND.decode(body).kind
    except MALFORMED:
        return None


def _says_success(body: bytes) -> bool:
    try:
        found = _OUTCOME.decode(body)
    except MALFORMED:
        return False
    return found.kind == _STATUS_KIND and found.status == _SUCCESS


def _message_of(body: bytes) -> str:
    try:
        return one_line(_STATUS.decode(body).message)
    except MALFORMED:
        return one_line(body[: 4 * _LONGEST_MESSAGE].decode(errors="replace"))


def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return f"status {status} without a message"


def _seconds(retry_after: str) -> float:
    """Retry-After as the API server writes it, in whole seconds; 0 for an HTTP date, which only proxies write."""
    return float(retry_after) if retry_after.isascii() and retry_after.isdigit() else 0.0
