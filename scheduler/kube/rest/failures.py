"""Refusals and failures that the API server answers -> the errors of `port`."""

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
_LONGEST_MESSAGE: Final = 1024

# What msgspec raises for a malformed document, bytes that are no UTF-8 and endless nesting included.
MALFORMED: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class _Details(msgspec.Struct, rename="camel"):
    retry_after_seconds: int = 0


class ApiStatus(msgspec.Struct):
    """metav1.Status, the body of every refusal and the object of an ERROR watch event. code: HTTP status."""

    message: str = ""
    reason: str = ""
    code: int = 0
    details: _Details | None = None


_STATUS: Final = msgspec.json.Decoder(ApiStatus)


def error_from_answer(status: int, headers: Mapping[str, str], body: bytes) -> port.ApiError:
    """The error for an answer with a status of 300 or more. body: a metav1.Status, or whatever a proxy wrote."""
    try:
        message = _STATUS.decode(body).message
    except MALFORMED:
        message = body.decode(errors="replace").strip()
    return _error(status, message, _seconds(headers.get("Retry-After", "")))


def error_from_event(status: ApiStatus) -> port.ApiError:
    """The error for an ERROR event inside a watch."""
    return _error(status.code, status.message, float(status.details.retry_after_seconds) if status.details else 0.0)


def _error(status: int, message: str, retry_after_s: float) -> port.ApiError:
    message = (message or _phrase(status))[:_LONGEST_MESSAGE]
    if status == HTTPStatus.TOO_MANY_REQUESTS:
        return port.ApiThrottled(message, retry_after_s)
    # A redirect is not followed: whoever sent it, the API server has not executed the request.
    default = port.ApiRefused if HTTPStatus.MULTIPLE_CHOICES <= status < HTTPStatus.INTERNAL_SERVER_ERROR else None
    return _REFUSALS.get(status, default or port.ApiFailed)(message, status)


def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return f"status {status} without a message"


def _seconds(retry_after: str) -> float:
    """Retry-After as the API server writes it, whole seconds; 0 for an HTTP date, which only proxies write."""
    return float(retry_after) if retry_after.isascii() and retry_after.isdigit() else 0.0
