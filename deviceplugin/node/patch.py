"""What the plugin says on the node object. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class NodePatch:
    """What the node object is to say. annotations: by key; None: there is none. capacity: by resource name."""

    annotations: Mapping[str, str | None] = field(default_factory=dict)
    capacity: Mapping[str, int] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.annotations or self.capacity)
