"""The gang of a pod: pods that start together or not at all. Pure."""

from collections.abc import Mapping
from typing import Final, NamedTuple

from config.protocol import names
from scheduler.kube import objects
from scheduler.kube.scheduling import NATIVE_GROUP, PLUGINS_GROUP, VOLCANO_GROUP

# Pods that are placed in one transaction. Nothing else is decided meanwhile, for up to a millisecond for each pod.
MOST_TOGETHER: Final = 512
_LONGEST_NUMBER: Final = 8
_EMPTY: Final[Mapping[str, str]] = {}


class GangKey(NamedTuple):
    """Key of a gang. api_group: of the PodGroup that describes it; "" for the annotations of its pods."""

    namespace: str
    name: str
    api_group: str = ""

    def __str__(self) -> str:
        """The gang as in messages."""
        return f"PodGroup {self.name} of {self.api_group}" if self.api_group else f"gang {self.name}"


class Gang(NamedTuple):
    """Gang that a pod names. minimum: pods that must start together, 1..MOST_TOGETHER; 0 if a PodGroup says it.

    problem: why the minimum cannot be read; "" if it can.
    """

    key: GangKey
    minimum: int
    problem: str = ""


def gang_of(meta: objects.ObjectMeta, group: objects.SchedulingGroup | None) -> Gang | None:
    """Return the gang of a pod; None if it has none. group: the native PodGroup in its spec.

    Of several, our annotations come first, then the native one.
    """
    annotations, labels = meta.annotations or _EMPTY, meta.labels or _EMPTY
    if name := annotations.get(names.GANG, ""):
        return _by_annotations(GangKey(meta.namespace, name), annotations.get(names.GANG_MIN, ""))
    described = (
        (NATIVE_GROUP, "" if group is None else group.pod_group_name),
        (PLUGINS_GROUP, labels.get(names.POD_GROUP_LABEL, "")),
        (VOLCANO_GROUP, annotations.get(names.VOLCANO_GROUP, "")),
    )
    return next((Gang(GangKey(meta.namespace, name, group), 0) for group, name in described if name), None)


def _by_annotations(key: GangKey, text: str) -> Gang:
    valid = text.isascii() and text.isdigit() and len(text) <= _LONGEST_NUMBER and 1 <= int(text) <= MOST_TOGETHER
    found = f"found {text[:_LONGEST_NUMBER]!r}" if text else "found none"
    problem = "" if valid else f"annotation {names.GANG_MIN}: expected a number from 1 to {MOST_TOGETHER}, {found}"
    return Gang(key, int(text) if valid else 1, problem)
