"""DevicePluginConfiguration: the fields of the device plugin's configuration, with their defaults.

One file serves all nodes of a cluster: differences between nodes come from `NODE_NAME` and from the node itself. Pure.
"""

import posixpath
import re
from collections import Counter
from collections.abc import Sequence
from typing import Annotated, Final, Literal, TypeAlias

from pydantic import AfterValidator, BeforeValidator, Field, ValidationInfo, field_validator

from config.settings.duration import Seconds
from config.settings.scheduler import (
    DEFAULT_NOT_READY_AFTER_S,
    LARGEST_UNIT_MIB,
    LONGEST_NOT_READY_AFTER_S,
    NOT_READY_AFTER,
    SHORTEST_NOT_READY_AFTER_S,
    ClientConnection,
    Resources,
)
from config.settings.schema import Address, Section, host_and_port

API_VERSION: Final = "gpushare/v1alpha1"
KIND: Final = "DevicePluginConfiguration"
DEFAULT_STATE_DIR: Final = "/var/lib/kubelet/device-plugins/gpushare"
ENV_PREFIX: Final = "GPUSHARE_DEVICE_PLUGIN_"
# A List of pod resources disturbs the kubelet while it admits pods (kubernetes pull 137534): the minimum interval.
_SHORTEST_RECONCILE_S: Final = 30.0

# 16 TiB: in units of 1 MiB, the most that an inventory may announce per card (config/protocol/inventory.py).
_LARGEST_MEMORY_MIB: Final = 2**24
# A failed card, or a pod on the wrong card, should not go unnoticed for longer.
_LONGEST_RECONCILE_S: Final = 3600.0
_LONGEST_READING_S: Final = 300.0
# Reading a card takes the driver a few milliseconds, during which its containers' work waits.
_SHORTEST_READING_S: Final = 1.0
# The kubelet handles no other pod while it waits for an Allocate, without a deadline (devicemanager/endpoint.go).
_LONGEST_ALLOCATE_WAIT_S: Final = 5.0
_LARGEST_XID: Final = 65_535
_LONGEST_EXIT_AFTER_S: Final = 86_400.0
_LONGEST_NAME: Final = 253
# Kinds that `isolationFallback` may name too; any other value is the path of a description.
_FALLBACKS: Final = ("none", "mps", "hami-core")
ISOLATIONS: Final = ("auto", "driver", *_FALLBACKS)
# The longest socket path below it is `/<UUID>/control_privileged`; the limit is 107 characters (unix(7)).
_LONGEST_MPS_DIRECTORY: Final = 47
_LABEL: Final = r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?"
_NODE_NAME: Final = re.compile(rf"{_LABEL}(?:\.{_LABEL})*")


def _node_name(text: str) -> str:
    if len(text) > _LONGEST_NAME or not _NODE_NAME.fullmatch(text):
        raise ValueError(f"expected the name of a node, as in `kubectl get nodes`, found {text[:80]!r}")
    return text


def _absolute(path: str) -> str:
    if not path.startswith("/") or "\0" in path:
        raise ValueError(f"expected an absolute path, found {path[:80]!r}")
    return path


def _absolute_or_empty(path: str) -> str:
    return path and _absolute(path)


def _off(value: object) -> object:
    """Convert false to `off`: YAML reads an unquoted `off` as false, and `monitor: off` has no other meaning."""
    return "off" if value is False else value


def _kind(name: str, kinds: Sequence[str]) -> str:
    if name not in kinds and not name.startswith("/"):
        message = f"expected {', '.join(kinds)}, or an absolute path, found {name[:80]!r}"
        raise ValueError(message)
    return name


def _isolation(name: str) -> str:
    return _kind(name, ISOLATIONS)


def _fallback(name: str) -> str:
    return _kind(name, _FALLBACKS)


NodeName: TypeAlias = Annotated[str, AfterValidator(_node_name)]
AbsolutePath: TypeAlias = Annotated[str, AfterValidator(_absolute)]
XidNumber: TypeAlias = Annotated[int, Field(ge=1, le=_LARGEST_XID)]
Mode: TypeAlias = Literal["auto", "cdi", "environment"]
Monitor: TypeAlias = Literal["off", "warn", "evict"]
Isolation: TypeAlias = Annotated[str, AfterValidator(_isolation)]
IsolationFallback: TypeAlias = Annotated[str, AfterValidator(_fallback)]
Enforcement: TypeAlias = Literal["preferred", "required"]


class Mps(Section):
    """NVIDIA's Multi-Process Service, with `isolation: mps`."""

    daemons: Literal["plugin", "external"] = Field(
        default="plugin",
        description="Program that runs the control daemons, one per card: the plugin, or one of yours (`external`).",
    )
    protocol: Literal["auto", 2, 3] = Field(
        default="auto",
        description="Protocol of the control daemons. `3`, from driver 615: a namespace per container, no `hostIPC`. "
        "`auto`: 3 if the driver has it, the plugin runs the daemons, and `directory` has at most 22 characters.",
    )
    control: str = Field(
        default="nvidia-cuda-mps-control",
        min_length=1,
        description="NVIDIA's control program: a path, or a name on `PATH`.",
    )
    arguments: tuple[str, ...] = Field(
        default=("-f",), description="Arguments of a daemon, which must stay in the foreground."
    )
    directory: AbsolutePath = Field(
        default="/run/gpushare/mps",
        max_length=_LONGEST_MPS_DIRECTORY,
        description="Directory of the daemons' pipes; its path is the same on the node, in the plugin's container and "
        "in clients. It cannot be in the kubelet's directories, because servers of all users need access.",
    )


class HamiCore(Section):
    """Settings for the HAMi-core preload library. Used only with `isolation: hami-core`."""

    library: str = Field(
        default="",
        description="Path of `libvgpu.so`, the same on the node and in the plugin's container. Only its owner may have "
        "write access, and no directory above it may be writable by everyone.",
    )


class Kubelet(Section):
    """Paths of the kubelet's sockets."""

    device_plugin_dir: AbsolutePath = Field(
        default="/var/lib/kubelet/device-plugins",
        description="Directory of the kubelet's device plugin sockets and checkpoint.",
    )
    pod_resources_socket: AbsolutePath = Field(
        default="/var/lib/kubelet/pod-resources/kubelet.sock", description="Socket of the kubelet's PodResources API."
    )


class DevicePluginConfiguration(Section):
    """All settings. A file must have `apiVersion` and `kind`; `nodeName` usually comes from `NODE_NAME`."""

    api_version: Literal["gpushare/v1alpha1"] = Field(default=API_VERSION, description="Version and kind of this file.")
    kind: Literal["DevicePluginConfiguration"] = Field(default=KIND, description="Version and kind of this file.")
    node_name: NodeName = Field(
        description="The node that the plugin runs on. In a file for all nodes, omit it and set `NODE_NAME`."
    )
    pod_uid: str = Field(
        default="",
        max_length=_LONGEST_NAME,
        description="UID of the plugin's own pod, set by the DaemonSet.",
    )
    client_connection: ClientConnection = Field(default=ClientConnection(), description="How to reach the API server.")
    listen: Address = Field(
        default=":10262",
        description="Address and port of `/healthz`, `/readyz`, `/metrics` and, on this machine only, `/status`. "
        "Port 0: any free port.",
    )
    not_ready_after_s: Seconds = Field(
        default=DEFAULT_NOT_READY_AFTER_S,
        validation_alias="notReadyAfter",
        ge=SHORTEST_NOT_READY_AFTER_S,
        le=LONGEST_NOT_READY_AFTER_S,
        description=NOT_READY_AFTER,
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(default="info", description="Minimum log level.")
    log_format: Literal["auto", "console", "json"] = Field(
        default="auto", description="`auto`: console in a terminal, otherwise JSON, one object per line."
    )
    dcgm_metrics: bool = Field(
        default=True,
        description="Also export card readings under dcgm-exporter's names. Disable it if dcgm-exporter runs on the "
        "same nodes; otherwise sums count each card twice.",
    )
    resources: Resources = Field(default=Resources(), description="Resource names, the same as the scheduler's.")
    memory_unit_mib: int = Field(
        default=1024,
        validation_alias="memoryUnitMiB",
        ge=1,
        le=LARGEST_UNIT_MIB,
        description="MiB in one unit of `gpuMem`, the same as the scheduler's. Use 128 or more, because the kubelet "
        "counts each unit as a device. The plugin does not start if the device list exceeds 4 MiB.",
    )
    announce_gpu_core: bool = Field(
        default=False, description="Add 100 `gpuCore` for each usable card to the node's capacity."
    )
    mode: Mode = Field(
        default="auto",
        description="How a container gets its card: through CDI devices, or through `NVIDIA_VISIBLE_DEVICES` "
        "(`environment`). `auto` [chooses the mode](node.md#how-a-card-gets-into-a-container).",
    )
    cdi_dir: AbsolutePath = Field(default="/var/run/cdi", description="Directory for the plugin's own CDI specs.")
    cdi_spec_dirs: tuple[AbsolutePath, ...] = Field(
        default=("/var/run/cdi",),
        description="Directories with NVIDIA's CDI specs, lowest priority first. The specs have the kind "
        "`nvidia.com/gpu`, possibly with the prefix `k8s.device-plugin.`, `runtime.` or `management.`.",
    )
    nvidia_ctk: str = Field(
        default="nvidia-ctk",
        min_length=1,
        description="Program that generates a spec if none exists: a path, or a name on `PATH`.",
    )
    kubelet: Kubelet = Field(default=Kubelet(), description="Paths of the kubelet's sockets.")
    state_dir: AbsolutePath = Field(
        default=DEFAULT_STATE_DIR,
        description="Directory for [files that must outlive the container](node-reference.md#state-directory). Do not "
        "use the kubelet's own directory: a starting kubelet deletes the files in it, but not those in "
        "subdirectories.",
    )
    host_proc: AbsolutePath = Field(default="/proc", description="The host's `/proc`, used to trace processes to pods.")
    host_dev: AbsolutePath = Field(
        default="/host/dev",
        description="The host's `/dev`. Without this mount, the plugin does not compare NVIDIA's CDI specs with the "
        "device nodes. In environment mode it then does not report device nodes to the kubelet.",
    )
    host_cgroup: AbsolutePath = Field(
        default="/host/cgroup",
        description="The host's cgroup v2 tree. Without this mount, the plugin cannot read the memory limits that "
        "the driver enforces, nor exact memory use.",
    )
    simulate: str = Field(
        default="", description="A cluster file; the plugin announces the file's cards instead of real ones."
    )
    simulate_control: str = Field(
        default="",
        validate_default=True,
        description="A Unix socket for injecting faults into simulated cards; needs `simulate`.",
    )
    unified_memory_mib: int = Field(
        default=0,
        validation_alias="unifiedMemoryMiB",
        ge=0,
        le=_LARGEST_MEMORY_MIB,
        description="Size in MiB of a card that shares the machine's memory and reports no size. 0: such a card has "
        "no units.",
    )
    count_reserved_memory: bool = Field(
        default=False,
        description="Also count the memory that the driver reserves, like the legacy plugin: a T4 has 15 units, not "
        "14. If pods use a card's units completely, the last memory allocation fails.",
    )
    driver_root: Annotated[str, AfterValidator(_absolute_or_empty)] = Field(
        default="",
        description="Root directory of the driver in the plugin's container, if the NVIDIA runtime does not inject "
        "NVML.",
    )
    old_style_ids: bool = Field(
        default=False, description="Use device IDs `<UUID>-_-<number>`, like the legacy plugin."
    )
    health_check: bool = Field(default=True, description="Do not use unhealthy cards until they recover.")
    reading_interval_s: Seconds = Field(
        default=10.0,
        validation_alias="readingInterval",
        ge=_SHORTEST_READING_S,
        le=_LONGEST_READING_S,
        description="How often each card is read. A card recovers after several good readings.",
    )
    driver_exit_after_s: Seconds = Field(
        default=600.0,
        validation_alias="driverExitAfter",
        ge=0.0,
        le=_LONGEST_EXIT_AFTER_S,
        description="Exit if the driver cannot be opened for this long, so that the kubelet recreates the container. "
        "`0`: never.",
    )
    ignored_xids: tuple[XidNumber, ...] = Field(
        default=(), description="XIDs to ignore, in addition to application errors."
    )
    hardware_xids: tuple[XidNumber, ...] = Field(
        default=(),
        description="XIDs to treat as [hardware errors](nodes-and-cards.md#xids), in addition to the known ones.",
    )
    monitor: Annotated[Monitor, BeforeValidator(_off)] = Field(
        default="warn",
        description="Reaction to a pod that uses more of a card's memory than it requested: none, an Event, or "
        "eviction.",
    )
    monitor_allowance_mib: int = Field(
        default=512,
        validation_alias="monitorAllowanceMiB",
        ge=0,
        le=_LARGEST_MEMORY_MIB,
        description="MiB that a pod may use beyond its request, for example for CUDA contexts.",
    )
    evict_unregistered: bool = Field(
        default=False,
        description="Evict pods that the kubelet admitted before it knew `gpuMem`; they never get devices.",
    )
    evict_mismatched: bool = Field(
        default=False, description="Evict pods that have a container on a card that the scheduler did not choose."
    )
    evict_unscheduled: bool = Field(
        default=False,
        description="Evict pods that requested `gpuMem` but bypassed the scheduler.",
    )
    announce_outside_use: bool = Field(
        default=False,
        description="Subtract the memory used by processes outside Kubernetes from the card's announced memory.",
    )
    mark_assigned: bool = Field(
        default=False,
        description="Set `ALIYUN_COM_GPU_MEM_ASSIGNED` to `true` on pods that have their cards, for tools that "
        "read it. The plugin then needs the right to patch pods.",
    )
    reconcile_interval_s: Seconds = Field(
        default=60.0,
        validation_alias="reconcileInterval",
        ge=_SHORTEST_RECONCILE_S,
        le=_LONGEST_RECONCILE_S,
        description="How often the plugin checks for [drift](node-reference.md#kinds-of-drift).",
    )
    allocate_wait_s: Seconds = Field(
        default=0.5,
        validation_alias="allocateWait",
        ge=0,
        le=_LONGEST_ALLOCATE_WAIT_S,
        description="In environment mode, how long an Allocate call waits for the scheduler's decision. Until "
        "then, no other pod is admitted.",
    )
    isolation: Isolation = Field(
        default="auto",
        description="[Mechanism](isolation.md) that keeps a container within its share of a card: `none`, `driver`, "
        "`mps`, `hami-core`, or the absolute path of your own description. `auto`: `driver` if the node supports it, "
        "otherwise `isolationFallback`.",
    )
    isolation_fallback: IsolationFallback = Field(
        default="none",
        description="With `isolation: auto`, if the driver cannot limit memory: `none`, `mps`, `hami-core` or a path.",
    )
    enforcement: Enforcement = Field(
        default="preferred",
        description="What happens to a container whose share of memory cannot be enforced: it starts without a limit "
        "(`preferred`), or it does not start (`required`).",
    )
    soft_limits: bool = Field(
        default=False,
        description="Have the driver guarantee the request of a pod with `gpushare/gpu-mem-limit`. Each start of such "
        "a container [takes this memory from other pods of the node](isolation.md#burst) until a reboot.",
    )
    mps: Mps = Field(default=Mps(), description="Settings for `isolation: mps`.")
    hami_core: HamiCore = Field(
        default=HamiCore(), validate_default=True, description="Settings for `isolation: hami-core`."
    )

    @field_validator("cdi_spec_dirs")
    @classmethod
    def _each_once(cls, directories: tuple[str, ...]) -> tuple[str, ...]:
        if not directories:
            raise ValueError("expected at least one directory, such as /var/run/cdi, found none")
        twice = [path for path, times in Counter(map(posixpath.normpath, directories)).items() if times > 1]
        if twice:
            raise ValueError(f"expected each directory once, found more than once: {', '.join(twice)}")
        return directories

    @field_validator("simulate_control")
    @classmethod
    def _only_for_simulated_cards(cls, socket: str, info: ValidationInfo) -> str:
        if socket and not info.data.get("simulate", ""):
            raise ValueError("expected simulate to be set: faults apply to simulated cards only")
        return socket

    @field_validator("hardware_xids")
    @classmethod
    def _not_ignored_too(cls, hardware: tuple[int, ...], info: ValidationInfo) -> tuple[int, ...]:
        both = sorted(set(hardware) & set(info.data.get("ignored_xids", ())))
        if both:
            raise ValueError(f"expected each XID in one list, found in ignoredXids too: {', '.join(map(str, both))}")
        return hardware

    @field_validator("hami_core")
    @classmethod
    def _where_it_is_used(cls, settings: HamiCore, info: ValidationInfo) -> HamiCore:
        isolation, fallback = (info.data.get(name) for name in ("isolation", "isolation_fallback"))
        used = {isolation, fallback if isolation == "auto" else ""}
        if "hami-core" in used and not settings.library.startswith("/"):
            message = f"isolation: hami-core: expected the absolute path of the library, found {settings.library!r}"
            raise ValueError(message)
        return settings

    @field_validator("isolation")
    @classmethod
    def _through_cdi(cls, isolation: str, info: ValidationInfo) -> str:
        if isolation == "driver" and info.data.get("mode") == "environment":
            raise ValueError("driver: expected mode: cdi or auto: without CDI, a pod could replace its own limit")
        return isolation

    @property
    def listen_address(self) -> tuple[str, int]:
        """Host ("" for all addresses; an IPv6 address without its brackets) and port of `listen`."""
        return host_and_port(self.listen)
