"""Asks the API server who a user is, and what a user or this program may do: token reviews and access reviews."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from http import HTTPMethod
from typing import Any, Final, TypeAlias, TypeVar

import msgspec

from config.protocol import names
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
    reason: str = ""


class _AccessReview(msgspec.Struct):
    status: _AccessStatus


_TOKEN: Final = msgspec.json.Decoder(_TokenReview)
_ALLOWED: Final = msgspec.json.Decoder(_AccessReview)
T = TypeVar("T")


class Reviews:
    """Reviews by one API server; they need `create` on both kinds of review."""

    def __init__(self, transport: Transport) -> None:
        """transport: shared with the client that creates this object."""
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
        """Whether the user may list the pods of a namespace, "" for all namespaces. Raises ApiError."""
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


_PATH: Final = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
_KIND: Final = "SelfSubjectAccessReview"
_EVENTS: Final = "events.k8s.io"
_STORAGE: Final = "storage.k8s.io"
_APPS: Final = "apps"
_OF_STORAGE: Final = ("storageclasses", "csinodes", "csidrivers", "csistoragecapacities", "volumeattachments")
_POLICY: Final = "policy"
_LEASES: Final = "coordination.k8s.io"


@dataclass(frozen=True, slots=True)
class Right:
    """One verb on one resource. group: "" for the core group; namespace: "" for all; name: "" for all."""

    verb: str
    resource: str
    subresource: str = ""
    group: str = ""
    namespace: str = ""
    name: str = ""

    def __str__(self) -> str:
        """The right as in a log line: `create pods/binding`, `list configmaps in namespace kube-system`."""
        resource = f"{self.resource}/{self.subresource}" if self.subresource else self.resource
        resource = f"{resource}.{self.group}" if self.group else resource
        resource = f"{resource}/{self.name}" if self.name else resource
        return f"{self.verb} {resource}" + (f" in namespace {self.namespace}" if self.namespace else "")


# Right of a scheduler that preempts; the chart grants it if a profile preempts.
PREEMPTION: Final = Right("delete", "pods")
# Exactly the rights that deploy/manifests grants and this package uses.
NEEDED: Final = (
    *(Right(verb, "pods") for verb in ("list", "watch", "get")),
    *(Right(verb, resource) for resource in ("nodes", "namespaces") for verb in ("list", "watch")),
    *(Right(verb, "configmaps", namespace=names.UNHEALTHY_NAMESPACE) for verb in ("list", "watch")),
    *(
        Right(verb, resource)
        for resource in ("persistentvolumes", "persistentvolumeclaims")
        for verb in ("list", "watch", "patch")
    ),
    *(Right(verb, resource) for resource in ("services", "replicationcontrollers") for verb in ("list", "watch")),
    *(Right(verb, resource, group=_APPS) for resource in ("replicasets", "statefulsets") for verb in ("list", "watch")),
    *(Right(verb, resource, group=_STORAGE) for resource in _OF_STORAGE for verb in ("list", "watch")),
    Right("create", "pods", "binding"),
    Right("patch", "pods", "status"),
    PREEMPTION,
    *(Right(verb, "poddisruptionbudgets", group=_POLICY) for verb in ("list", "watch")),
    *(Right(verb, "events", group=_EVENTS) for verb in ("create", "patch")),
)


def of_lease(namespace: str, name: str) -> tuple[Right, ...]:
    """Rights that leader election needs."""
    own = tuple(Right(verb, "leases", "", _LEASES, namespace, name) for verb in ("list", "watch", "patch"))
    return (Right("create", "leases", "", _LEASES, namespace), *own)


async def missing_rights(transport: Transport, timeout_s: float, needed: Sequence[Right] = NEEDED) -> list[str]:
    """Needed rights that the API server denies, one readable line each. Raises ApiError."""
    # One at a time: otherwise each would open a connection while the lists are being read.
    answers = [await _ask(transport, right, timeout_s) for right in needed]
    return [
        f"{right}: {answer.reason}" if answer.reason else str(right)
        for right, answer in zip(needed, answers, strict=True)
        if not answer.allowed
    ]


async def _ask(transport: Transport, right: Right, timeout_s: float) -> _AccessStatus:
    attributes = {name: getattr(right, name) for name in Right.__slots__ if getattr(right, name)}
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": _KIND,
        "spec": {"resourceAttributes": attributes},
    }
    sent = msgspec.json.encode(review)
    body = await transport.send(HTTPMethod.POST, _PATH, sent, answers=_KIND, timeout_s=timeout_s)
    try:
        return _ALLOWED.decode(body).status
    except MALFORMED as error:
        raise port.ApiFailed(
            f"cannot decode the API server's response to the access review for {right}: {error}"
        ) from error
