"""IsolationMechanism: additions that keep a container to its share of a card. Pure.

A description has no code, only variables, mounts, device nodes, hooks, and one of a few preparations of the node. Its
texts are templates with a closed list of placeholders; a pod's author cannot put anything into them.
"""

import re
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Annotated, Final, Literal, Self, TypeAlias

from pydantic import AfterValidator, Field, field_validator, model_validator

from config.protocol import environment, names
from config.settings.deviceplugin import AbsolutePath, HamiCore, Mps
from config.settings.schema import Section, refuse_twins

API_VERSION: Final = "gpushare/v1alpha1"
KIND: Final = "IsolationMechanism"
# The value of `isolation` that leaves the choice to the node.
AUTO: Final = "auto"

PLACEHOLDERS: Final[Mapping[str, str]] = {
    "units": "units that it has on each of its cards",
    "mib": "these units in MiB",
    "percent": "percentage of each card, at least 1: its `gpuCore` request, or otherwise its share of the card's "
    "memory",
    "uuid": "UUIDs of its cards in order of index, comma-separated",
    "index": "indexes of its cards, comma-separated",
    "pod_uid": "UID of its pod",
    "container": "its name",
}
_PLACEHOLDER: Final = re.compile(rf"\{{({'|'.join(PLACEHOLDERS)})\}}")
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
# Variables that the device plugin sets itself: a mechanism must not give a container other cards or limits.
_OWN: Final = frozenset(
    {
        environment.VISIBLE_DEVICES,
        environment.CARD_UUIDS,
        environment.MEM_CONTAINER,
        environment.CGPU_DISABLE,
        environment.GPU_MEMORY_REQUEST,
        environment.GPU_MEMORY_LIMIT,
        names.MEM_IDX,
        names.MEM_POD,
        names.MEM_DEV,
    }
)
_LONGEST_CONTENT: Final = 4096
MPS_PIPES: Final = "CUDA_MPS_PIPE_DIRECTORY"
MPS_LOGS: Final = "CUDA_MPS_LOG_DIRECTORY"
# Name of each daemon's server, with protocol 3: short, because it is part of a socket's path.
MPS_SERVER: Final = "mps"
_HAMI_LIBRARY: Final = "/usr/local/vgpu/libvgpu.so"
_HAMI_CACHE: Final = "/usr/local/vgpu/cache"
_HAMI_LOCKS: Final = "/tmp/vgpulock"  # noqa: S108 - the library has the path built in


def filled(template: str, values: Mapping[str, str]) -> str:
    """Return the template with a value for each placeholder. Values are not expanded again."""
    return _PLACEHOLDER.sub(lambda match: values[match.group(1)], template)


def _template(text: str) -> str:
    rest = _PLACEHOLDER.sub("", text)
    if "{" in rest or "}" in rest or "\0" in rest:
        allowed = ", ".join(f"{{{name}}}" for name in PLACEHOLDERS)
        raise ValueError(f"expected no braces other than {allowed}, found {text[:80]!r}")
    return text


def _path_template(text: str) -> str:
    if not text.startswith("/") or ".." in PurePosixPath(text).parts:
        raise ValueError(f"expected an absolute path without .., found {text[:80]!r}")
    return _template(text)


Template: TypeAlias = Annotated[str, AfterValidator(_template)]
PathTemplate: TypeAlias = Annotated[str, AfterValidator(_path_template)]
Keeper: TypeAlias = Literal["container", "node"]
Preparation: TypeAlias = Literal["none", "mps"]


class IsolationMount(Section):
    """A path in the container. Set exactly one of `hostPath`, `directory` and `content`."""

    container_path: PathTemplate = Field(description="Path in the container.")
    host_path: PathTemplate | None = Field(default=None, description="A file or directory on the node.")
    directory: Keeper | None = Field(
        default=None,
        description="A directory that the plugin creates, open to every user. `container`: one per container, removed "
        "with its pod. `node`: one for all containers.",
    )
    content: str | None = Field(
        default=None,
        max_length=_LONGEST_CONTENT,
        description="A read-only file with this text, without placeholders, shared by all containers.",
    )
    read_only: bool = Field(default=True, description="Mount it read-only.")

    @model_validator(mode="after")
    def _from_one_source(self) -> Self:
        given = [name for name in ("hostPath", "directory", "content") if getattr(self, _FIELD_OF[name]) is not None]
        if len(given) != 1:
            raise ValueError(f"expected exactly one of {', '.join(_FIELD_OF)}, found {', '.join(given) or 'none'}")
        return self

    @model_validator(mode="after")
    def _nobody_writes_for_all(self) -> Self:
        if self.content is not None and not self.read_only:
            raise ValueError("expected readOnly: true with content: all containers of the node share the file")
        return self


_FIELD_OF: Final = {"hostPath": "host_path", "directory": "directory", "content": "content"}


class IsolationHook(Section):
    """A CDI hook."""

    hook_name: Literal["prestart", "createRuntime", "createContainer", "startContainer", "poststart", "poststop"] = (
        Field(description="Stage at which the hook runs.")
    )
    path: AbsolutePath = Field(description="A program on the node.")
    args: tuple[Template, ...] = Field(default=(), description="The program's arguments, beginning with its own name.")


class IsolationMechanism(Section):
    """Additions to each container with GPU memory, apart from its cards."""

    api_version: Literal["gpushare/v1alpha1"] = Field(default=API_VERSION, description="Version and kind of this file.")
    kind: Literal["IsolationMechanism"] = Field(default=KIND, description="Version and kind of this file.")
    environment: dict[str, Template] = Field(default={}, description="Environment variables, by name.")
    mounts: tuple[IsolationMount, ...] = Field(default=(), description="Mounts.")
    device_nodes: tuple[AbsolutePath, ...] = Field(
        default=(), description="Device nodes of the host that containers get under the same path."
    )
    hooks: tuple[IsolationHook, ...] = Field(
        default=(), description="CDI hooks; they need `mode: cdi` in the configuration."
    )
    preparation: Preparation = Field(
        default="none",
        description="`mps`: the plugin runs an MPS control daemon for each card.",
    )
    host_ipc: bool = Field(
        default=False, validation_alias="hostIPC", description="Reject pods without `hostIPC: true`."
    )

    @field_validator("environment")
    @classmethod
    def _names_of_variables(cls, variables: dict[str, str]) -> dict[str, str]:
        for name in variables:
            if not _VARIABLE.fullmatch(name):
                raise ValueError(f"expected the name of a variable, found {name[:80]!r}")
            if name in _OWN:
                raise ValueError(f"expected a variable that the device plugin does not set itself, found {name}")
        return variables

    @field_validator("mounts")
    @classmethod
    def _each_path_once(cls, mounts: tuple[IsolationMount, ...]) -> tuple[IsolationMount, ...]:
        refuse_twins("containerPath", [mount.container_path for mount in mounts])
        return mounts

    @property
    def nothing(self) -> bool:
        """Whether the mechanism gives containers nothing and prepares nothing."""
        return self == NONE


NONE: Final = IsolationMechanism()


def mps(settings: Mps) -> IsolationMechanism:
    """Return NVIDIA's Multi-Process Service: a client finds its card's daemon and its own limits.

    Source: NVIDIA, Multi-Process Service, "Environment Variables". The daemon has one card, which is its number 0.
    """
    pipes = f"{settings.directory}/{{uuid}}"
    return IsolationMechanism(
        environment={
            MPS_PIPES: pipes,
            "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": "0={mib}M",
            "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "{percent}",
        },
        mounts=(IsolationMount(container_path=pipes, host_path=pipes, read_only=False),),
        preparation="mps",
        host_ipc=True,
    )


def mps_namespace(settings: Mps, namespace: str) -> IsolationMechanism:
    """Return MPS of protocol 3: the container's namespace has its limits, and the client finds it by its directory.

    Source: NVIDIA, Multi-Process Service, "MPS v3 Namespaces".
    """
    pipes = f"{settings.directory}/{{uuid}}/{MPS_SERVER}/{namespace}"
    return IsolationMechanism(
        environment={MPS_PIPES: pipes},
        mounts=(IsolationMount(container_path=pipes, host_path=pipes, read_only=False),),
        preparation="mps",
    )


def hami_core(settings: HamiCore) -> IsolationMechanism:
    """Return the preload library HAMi-core, which counts CUDA allocations. settings.library: a path.

    Source: Project-HAMi/HAMi-core, README.md and src/multiprocess/multiprocess_memory_limit.h. A limit without an index
    applies to every card of the container.
    """
    return IsolationMechanism(
        environment={
            "CUDA_DEVICE_MEMORY_LIMIT": "{mib}m",
            "CUDA_DEVICE_SM_LIMIT": "{percent}",
            "CUDA_DEVICE_MEMORY_SHARED_CACHE": f"{_HAMI_CACHE}/{{container}}.cache",
        },
        mounts=(
            IsolationMount(container_path=_HAMI_LIBRARY, host_path=settings.library),
            IsolationMount(container_path="/etc/ld.so.preload", content=f"{_HAMI_LIBRARY}\n"),
            IsolationMount(container_path=_HAMI_CACHE, directory="container", read_only=False),
            IsolationMount(container_path=_HAMI_LOCKS, directory="node", read_only=False),
        ),
    )
