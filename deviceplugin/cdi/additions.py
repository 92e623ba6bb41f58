"""Additions of a container alongside its cards, in a form that either injection mode can carry. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from deviceplugin.cdi.edits import Edits, Json, combined, device_nodes


@dataclass(frozen=True, slots=True)
class BindMount:
    """A path of the host in the container. What is in it may be executed: a library has to be mapped."""

    host_path: str
    container_path: str
    read_only: bool = True

    def wire(self) -> Json:
        """The item of `mounts`."""
        options = ["ro" if self.read_only else "rw", "nosuid", "nodev", "bind"]
        return {"hostPath": self.host_path, "containerPath": self.container_path, "options": options}


@dataclass(frozen=True, slots=True)
class Additions:
    """env: variable -> value. device_nodes: under the same path as on the host. hooks: as the specification has them.

    Without CDI there are no hooks.
    """

    env: Mapping[str, str] = field(default_factory=dict)
    mounts: tuple[BindMount, ...] = ()
    device_nodes: tuple[str, ...] = ()
    hooks: tuple[Json, ...] = ()

    def edits(self) -> Edits:
        """The additions as CDI edits."""
        lists = {"mounts": [mount.wire() for mount in self.mounts], "hooks": list(self.hooks)}
        return combined([Edits(env=self.env, lists=lists), device_nodes(self.device_nodes)])
