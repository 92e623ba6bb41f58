"""Identity and rights of users by the API server: TokenReview and SubjectAccessReview."""

from collections.abc import Mapping
from http import HTTPMethod
from typing import Any, Final, TypeAlias, TypeVar

import msgspec

from scheduler.kube import port
from scheduler.kube.rest.failures import MALFORMED
from scheduler.kube.rest.transport import Transport

_TOKENS: Final = "/apis/authentication.k8s.io/v1/tokenreviews"
_TOKEN_KIND: Final = "TokenReview"  # noqa: S105 - the name of a kind
_ACCESS: Final = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
_ACCESS_KIND: Final = "SubjectAccessReview"
_TIMEOUT_S: Final = 10.0

Asked: TypeAlias = Mapping[str, Mapping[str, str]]


class User(msgspec.Struct, frozen=True):
    """A user whose token the API server accepts."""

    username: str = ""
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: dict[str, tuple[str, ...]] = {}


class _TokenStatus(msgspec.Struct):
    authenticated: bool = False
    user: User = User()


class _TokenReview(msgspec.Struct):
    status: _TokenStatus


class _AccessStatus(msgspec.Struct):
    allowed: bool = False
    denied: bool = False


class _AccessReview(msgspec.Struct):
    status: _AccessStatus


_TOKEN: Final = msgspec.json.Decoder(_TokenReview)
_ALLOWED: Final = msgspec.json.Decoder(_AccessReview)
T = TypeVar("T")


class Reviews:
    """Asks one API server, which needs `create` on both kinds of review."""

    def __init__(self, transport: Transport) -> None:
        """transport: shared with the client that makes this."""
        self._transport = transport

    async def user_of(self, token: str) -> User | None:
        """Owner of the token; None if the API server does not accept it. Raises ApiError."""
        review = {"apiVersion": "authentication.k8s.io/v1", "kind": _TOKEN_KIND, "spec": {"token": token}}
        status = (await self._asked(_TOKENS, _TOKEN_KIND, review, _TOKEN)).status
        return status.user if status.authenticated and status.user.username else None

    async def may_get_url(self, user: User, path: str) -> bool:
        """Whether the user may `get` a nonResourceURL. Raises ApiError."""
        return await self._may(user, {"nonResourceAttributes": {"verb": "get", "path": path}})

    async def may_list_pods(self, user: User, namespace: str) -> bool:
        """Whether the user may list the pods of a namespace; "": of all of them. Raises ApiError."""
        attributes = {"verb": "list", "resource": "pods", "version": "v1"}
        return await self._may(
            user, {"resourceAttributes": attributes | ({"namespace": namespace} if namespace else {})}
        )

    async def _may(self, user: User, asked: Asked) -> bool:
        spec = {"user": user.username, "uid": user.uid, "groups": user.groups, "extra": user.extra, **asked}
        review = {"apiVersion": "authorization.k8s.io/v1", "kind": _ACCESS_KIND, "spec": spec}
        status = (await self._asked(_ACCESS, _ACCESS_KIND, review, _ALLOWED)).status
        return status.allowed and not status.denied

    async def _asked(self, path: str, kind: str, review: Mapping[str, Any], decoder: "msgspec.json.Decoder[T]") -> T:
        sent = msgspec.json.encode(review)
        body = await self._transport.send(HTTPMethod.POST, path, sent, answers=kind, timeout_s=_TIMEOUT_S)
        try:
            return decoder.decode(body)
        except MALFORMED as error:
            raise port.ApiFailed(f"the server's {kind} cannot be decoded") from error
