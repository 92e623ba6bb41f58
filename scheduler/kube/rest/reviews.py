"""Asks the API server what this program may do."""

from collections.abc import Sequence
from dataclasses import dataclass
from http import HTTPMethod
from typing import Final

import msgspec

from config.protocol import names
from scheduler.kube import port
from scheduler.kube.rest.failures import MALFORMED
from scheduler.kube.rest.transport import Transport
from scheduler.kube.scheduling import POD_GROUPS


class _AccessStatus(msgspec.Struct):
    allowed: bool = False
    reason: str = ""


class _AccessReview(msgspec.Struct):
    status: _AccessStatus


_ALLOWED: Final = msgspec.json.Decoder(_AccessReview)
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
    *(Right(verb, "podgroups", group=group) for group in POD_GROUPS for verb in ("list", "watch")),
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
