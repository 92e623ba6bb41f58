"""Objects of a collection that a `Kind` shows: by the namespace in its path and its field selector."""

from collections.abc import Callable
from operator import attrgetter
from typing import Final, TypeAlias

from scheduler.kube.port import ApiRejected, Kind, T

Field: TypeAlias = Callable[[object], str]

_OF_EVERY_RESOURCE: Final[dict[str, Field]] = {
    "metadata.name": attrgetter("metadata.name"),
    "metadata.namespace": attrgetter("metadata.namespace"),
}
# Fields of pkg/apis/core/v1/conversion.go that this project decodes.
_OF_PODS: Final[dict[str, Field]] = {
    "spec.nodeName": attrgetter("spec.node_name"),
    "spec.schedulerName": attrgetter("spec.scheduler_name"),
    "status.phase": attrgetter("status.phase"),
    "status.nominatedNodeName": attrgetter("status.nominated_node_name"),
}


def resource_of(kind: Kind[T]) -> str:
    """The plural name of the resource: `/api/v1/namespaces/kube-system/configmaps` is of `configmaps`."""
    return kind.path.rsplit("/", 1)[-1]


def namespace_of(kind: Kind[T]) -> str:
    """The namespace in the path, "" for all."""
    match kind.path.split("/"):
        case [*_, "namespaces", namespace, _]:
            return namespace
    return ""


def shown_by(kind: Kind[T]) -> Callable[[T], bool]:
    """Whether the kind shows an object; raises ApiRejected for a selector that the server would reject."""
    fields = _OF_EVERY_RESOURCE | (_OF_PODS if resource_of(kind) == "pods" else {})
    terms = [_term(text, fields) for text in kind.field_selector.split(",") if text]
    if namespace := namespace_of(kind):
        terms.append((fields["metadata.namespace"], namespace, True))

    def shown(candidate: T) -> bool:
        return all((field(candidate) == value) is equal for field, value, equal in terms)

    return shown


def _term(text: str, fields: dict[str, Field]) -> tuple[Field, str, bool]:
    """`a=b`, `a==b` or `a!=b` as (field, value, whether they must be equal)."""
    name, operator, value = text.partition("!=") if "!=" in text else text.replace("==", "=").partition("=")
    if not operator:
        raise ApiRejected(f"invalid field selector: {text!r}", 400)
    if name not in fields:
        raise ApiRejected(f"field label not supported: {name}", 400)
    return fields[name], value, operator == "="
