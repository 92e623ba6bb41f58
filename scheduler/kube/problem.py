"""A problem of one object of the cluster, as it is reported to its owner."""

from dataclasses import dataclass
from typing import Final

BAD_ANNOTATION: Final = "BadAnnotation"


@dataclass(frozen=True, slots=True)
class Problem:
    """A problem of an object of the cluster. kind: Pod, Node, ConfigMap; name: `namespace/name` or name.

    uid: "" if unknown. on_object: whether its owner should see an Event on it, with this reason.
    happened: the log's name of an event, which is reported each time; "" for a lasting problem, which is reported once.
    """

    kind: str
    name: str
    message: str
    uid: str = ""
    on_object: bool = True
    reason: str = BAD_ANNOTATION
    happened: str = ""
