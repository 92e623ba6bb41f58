"""A problem of one object of the cluster, as it is reported to its owner."""

from dataclasses import dataclass
from typing import Final

BAD_ANNOTATION: Final = "BadAnnotation"


@dataclass(frozen=True, slots=True)
class Problem:
    """What is wrong with an object of the cluster. kind: Pod, Node, ConfigMap; name: `namespace/name` or name.

    uid: "" where it is not known. on_object: whether its owner should see an Event on it, with this reason.
    happened: what has happened to the object, as the log names it, which is told each time; "" where something is wrong
    with it, which is told once.
    """

    kind: str
    name: str
    message: str
    uid: str = ""
    on_object: bool = True
    reason: str = BAD_ANNOTATION
    happened: str = ""
