"""A problem with one object of the cluster, as reported to the object's owner."""

from dataclasses import dataclass
from typing import Final

BAD_ANNOTATION: Final = "BadAnnotation"


@dataclass(frozen=True, slots=True)
class Problem:
    """A problem with an object. kind: Pod, Node, ConfigMap. name: `namespace/name`, or the name alone.

    uid: "" if unknown. on_object: whether the owner should see an Event on the object, with this reason. happened: name
    of the log event for a problem that is reported each time; "" for a lasting problem, reported once.
    """

    kind: str
    name: str
    message: str
    uid: str = ""
    on_object: bool = True
    reason: str = BAD_ANNOTATION
    happened: str = ""
