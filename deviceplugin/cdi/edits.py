"""Additions to a container: the containerEdits of the Container Device Interface, combined from parts. Pure.

The cards, the environment and each isolation mechanism contribute one `Edits` each; `combined` merges them. Source:
SPEC.md of cncf-tags/container-device-interface, version 1.1.0.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

import msgspec

Json: TypeAlias = Mapping[str, object]  # an object of the specification as it is written there

# Before 0.5.0 a device name had to begin with a letter, and ours are hexadecimal digits.
LOWEST_VERSION: Final = (0, 5, 0)

_ENV: Final = "env"


@dataclass(frozen=True, slots=True)
class Edits:
    """Edits by kind. env: variable -> value. lists: `deviceNodes`, `mounts`, `hooks` and every other list, by CDI name.

    objects: entries that are not lists (`intelRdt`). version: version of the specification that these edits need.
    """

    env: Mapping[str, str] = field(default_factory=dict)
    lists: Mapping[str, Sequence[object]] = field(default_factory=dict)
    objects: Mapping[str, object] = field(default_factory=dict)
    version: tuple[int, int, int] = LOWEST_VERSION

    def wire(self) -> Json:
        """Return the `containerEdits` object."""
        env = [f"{name}={value}" for name, value in self.env.items()]
        lists = {name: list(values) for name, values in self.lists.items() if values}
        return {**({_ENV: env} if env else {}), **lists, **self.objects}


def combined(parts: Iterable[Edits]) -> Edits:
    """Merge all parts in order: a later value of a variable or object replaces an earlier one; equal items merge."""
    env: dict[str, str] = {}
    lists: dict[str, dict[bytes, object]] = {}
    objects: dict[str, object] = {}
    version = LOWEST_VERSION
    for part in parts:
        env.update(part.env)
        objects.update(part.objects)
        version = max(version, part.version)
        for name, values in part.lists.items():
            known = lists.setdefault(name, {})
            for value in values:
                known.setdefault(msgspec.json.encode(value, order="deterministic"), value)
    return Edits(env, {name: list(known.values()) for name, known in lists.items()}, objects, version)


def from_wire(wire: Json, version: tuple[int, int, int]) -> Edits:
    """Read the `containerEdits` of a spec of that version; a variable without "=" is left out."""
    env = wire.get(_ENV)
    variables = [str(item).partition("=") for item in env] if isinstance(env, list) else []
    others = {name: value for name, value in wire.items() if name != _ENV}
    return Edits(
        env={name: value for name, sign, value in variables if sign},
        lists={name: value for name, value in others.items() if isinstance(value, list)},
        objects={name: value for name, value in others.items() if not isinstance(value, list)},
        version=max(version, LOWEST_VERSION),
    )


def device_nodes(paths: Iterable[str]) -> Edits:
    """Return edits that add these device nodes of the host, under the same path."""
    return Edits(lists={"deviceNodes": [{"path": path} for path in paths]})


def read_only_mount(host_path: str, container_path: str) -> Edits:
    """Return edits that mount a file or directory of the host read-only."""
    options = ["ro", "nosuid", "nodev", "noexec", "bind"]
    return Edits(lists={"mounts": [{"hostPath": host_path, "containerPath": container_path, "options": options}]})


@dataclass(frozen=True, slots=True)
class BindMount:
    """A host path mounted into the container. Its files may be executed: a library cannot be loaded otherwise."""

    host_path: str
    container_path: str
    read_only: bool = True

    def wire(self) -> Json:
        """Return the item of `mounts`."""
        options = ["ro" if self.read_only else "rw", "nosuid", "nodev", "bind"]
        return {"hostPath": self.host_path, "containerPath": self.container_path, "options": options}


@dataclass(frozen=True, slots=True)
class Additions:
    """Additions to a container. env: variable -> value. device_nodes: same path as on the host. hooks: as in CDI.

    Without CDI there are no hooks.
    """

    env: Mapping[str, str] = field(default_factory=dict)
    mounts: tuple[BindMount, ...] = ()
    device_nodes: tuple[str, ...] = ()
    hooks: tuple[Json, ...] = ()

    def edits(self) -> Edits:
        """Return the additions as CDI edits."""
        lists = {"mounts": [mount.wire() for mount in self.mounts], "hooks": list(self.hooks)}
        return combined([Edits(env=self.env, lists=lists), device_nodes(self.device_nodes)])
