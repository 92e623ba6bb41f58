"""Rights that manifests grant, held against the requests that an API server has answered, by its audit log.

A right counts as used when a request was allowed by the very role that grants it, and was answered 2xx.
"""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Final

from e2e.control_plane.admin import Json
from e2e.programs import manifests

_REASON: Final = "authorization.k8s.io/reason"


class NotNarrow(Exception):
    """A rule grants more than can be listed; the message says which."""


@dataclass(frozen=True, slots=True)
class Right:
    """role: as the audit log names it. namespace, name: "" for all. resource: with its subresource."""

    user: str
    role: str
    verb: str
    group: str
    resource: str
    namespace: str
    name: str

    def __str__(self) -> str:
        """As in a message."""
        resource = ".".join(filter(None, (self.resource, self.group))) + (f"/{self.name}" if self.name else "")
        where = f" in namespace {self.namespace}" if self.namespace else ""
        return f"{self.user}: {self.verb} {resource}{where}, by {self.role}"


@dataclass(frozen=True, slots=True)
class Request:
    """One that was answered, as far as its answer has begun. reason: what allowed it, or why nothing did."""

    user: str
    verb: str
    group: str
    resource: str
    namespace: str
    name: str
    uri: str
    status: int
    message: str
    reason: str

    @property
    def done(self) -> bool:
        """Whether the server has done it."""
        return HTTPStatus.OK <= self.status < HTTPStatus.MULTIPLE_CHOICES

    def __str__(self) -> str:
        """As in a message."""
        return f"{self.user}: {self.verb} {self.uri}: {self.status} {self.message or self.reason}"


def user(account: str) -> str:
    """A ServiceAccount of the manifests, as the API server names it."""
    return f"system:serviceaccount:{manifests.NAMESPACE}:{account}"


def granted(documents: Iterable[Json]) -> set[Right]:
    """Every right that these roles give by these bindings. Raises NotNarrow for what covers more than it names."""
    by_kind: dict[str, list[Json]] = {}
    for document in documents:
        by_kind.setdefault(document["kind"], []).append(document)
    bindings = [*by_kind.get("RoleBinding", []), *by_kind.get("ClusterRoleBinding", [])]
    return {
        right
        for role in (*by_kind.get("Role", []), *by_kind.get("ClusterRole", []))
        for binding in bindings
        if (binding["roleRef"]["kind"], binding["roleRef"]["name"]) == (role["kind"], role["metadata"]["name"])
        for subject in binding["subjects"]
        for right in _of_role(role, binding, f"system:serviceaccount:{subject['namespace']}:{subject['name']}")
    }


def _of_role(role: Json, binding: Json, who: str) -> Iterator[Right]:
    name, namespace = f'{role["kind"]} "{role["metadata"]["name"]}"', binding["metadata"].get("namespace", "")
    for rule in role["rules"]:
        if "nonResourceURLs" in rule or "*" in (*rule["apiGroups"], *rule["resources"], *rule["verbs"]):
            message = f"{name} grants {rule}: name each group, resource and verb"
            raise NotNarrow(message)
        for group in rule["apiGroups"]:
            for resource in rule["resources"]:
                for verb in rule["verbs"]:
                    for one in rule.get("resourceNames", [""]):
                        yield Right(who, name, verb, group, resource, namespace, one)


def requests(log: Path) -> list[Request]:
    """What is in the audit log so far."""
    lines = log.read_text(encoding="utf-8").split("\n")[:-1]
    return [_request(json.loads(line)) for line in lines]


def _request(event: Json) -> Request:
    about, answer = event.get("objectRef", {}), event.get("responseStatus", {})
    return Request(
        user=event["user"]["username"],
        verb=event["verb"],
        group=about.get("apiGroup", ""),
        resource="/".join(filter(None, (about.get("resource"), about.get("subresource")))),
        namespace=about.get("namespace", ""),
        name=about.get("name", ""),
        uri=event["requestURI"],
        status=answer.get("code", 0),
        message=answer.get("message", ""),
        reason=event.get("annotations", {}).get(_REASON, ""),
    )


def unused(rights: Iterable[Right], answered: Iterable[Request]) -> list[str]:
    """Those that no request has used, a line each."""
    used = {
        (one.user, one.verb, one.group, one.resource, namespace, name, _role(one))
        for one in answered
        if one.done
        for namespace in ("", one.namespace)
        for name in ("", one.name)
    }
    return sorted(
        str(right)
        for right in rights
        if (right.user, right.verb, right.group, right.resource, right.namespace, right.name, right.role) not in used
    )


def refused(answered: Iterable[Request]) -> list[str]:
    """Those that were not allowed, a line each."""
    return sorted({str(one) for one in answered if one.status == HTTPStatus.FORBIDDEN})


def beyond(rights: Iterable[Right], answered: Iterable[Request]) -> set[tuple[str, str]]:
    """(verb, resource or path) of what was allowed by other roles than those that grant these rights."""
    own = {right.role for right in rights}
    return {
        (one.verb, one.resource or one.uri.partition("?")[0]) for one in answered if one.done and _role(one) not in own
    }


def _role(one: Request) -> str:
    """`ClusterRole "x"` out of `RBAC: allowed by ClusterRoleBinding "x" of ClusterRole "x" to …`."""
    return one.reason.partition(" of ")[2].partition(" to ")[0]
