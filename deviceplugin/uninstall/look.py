"""Looks at what there is on the node: its object and pods, what the kubelet knows, files. Changes nothing."""

import asyncio
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from http import HTTPMethod
from pathlib import Path
from typing import Final
from urllib.parse import quote

import msgspec

from config.protocol.quantity import QuantityError, whole
from config.settings.deviceplugin import DevicePluginConfiguration
from deviceplugin import lock
from deviceplugin.allocation import journal
from deviceplugin.allocation.pods import NodePod, read_pod
from deviceplugin.backends import GENERATED, GENERATED_SPEC, SIMULATED_CARDS
from deviceplugin.cdi.spec_files import SpecFiles
from deviceplugin.files import beside
from deviceplugin.health import last_known, record, releases
from deviceplugin.isolation import compute_modes, fill, node_isolation
from deviceplugin.kubelet import checkpoint, session_file
from deviceplugin.kubelet.checkpoint import CheckpointEntry, CheckpointError
from deviceplugin.kubelet.client import KubeletContainer, KubeletSilent, PodResources
from deviceplugin.kubelet.registration import SOCKET_NAME
from deviceplugin.kubelet.session import CHECKPOINT
from deviceplugin.node import starts
from deviceplugin.uninstall.facts import Holders, Installed, NodeObject, StateDirectory
from deviceplugin.uninstall.holders import holders, unknown_to
from deviceplugin.uninstall.mps_directories import left_by_daemons
from scheduler.kube import objects
from scheduler.kube.port import ApiError, ApiNotFound
from scheduler.kube.rest.transport import Transport

_ANSWERS_WITHIN_S: Final = 10.0
_NEITHER: Final = "the kubelet does not answer, and its checkpoint cannot be read"
_FILES: Final = (
    *(lock.FILE, journal.FILE, session_file.FILE, starts.FILE, record.FILE, last_known.FILE, releases.SOCKET),
    compute_modes.FILE,
)
# Directory -> what the plugin writes in it; None: files of any name.
_DIRECTORIES: Final = {
    node_isolation.DIRECTORY: frozenset({fill.PODS, fill.NODE}),
    GENERATED: frozenset({GENERATED_SPEC}),
    SIMULATED_CARDS: None,
}
# With what was being written when the plugin was killed.
OURS: Final = frozenset({*_FILES, *_DIRECTORIES, *(beside(Path(name)).name for name in _FILES)})


class _PodList(msgspec.Struct):
    items: tuple[objects.PodObject, ...] = ()


@dataclass(frozen=True, slots=True)
class _Answered:
    """What the API server says. unknown: why it says nothing."""

    node: NodeObject | None = None
    pods: tuple[NodePod, ...] = ()
    unknown: str = ""


@dataclass(slots=True)
class _Disk:
    state: StateDirectory
    specs: dict[str, str] = field(default_factory=dict)
    sockets: tuple[str, ...] = ()
    modes: str = ""
    unreadable: list[tuple[str, str]] = field(default_factory=list)


async def look(c: DevicePluginConfiguration, api: Transport | str) -> Installed:
    """api: a client of the API server, or why there is none."""
    said = _Answered(unknown=api) if isinstance(api, str) else await _answered(c, api)
    disk = await asyncio.to_thread(_disk, c)
    recorded, listed_resources = await asyncio.to_thread(_recorded, c)
    found = None if said.unknown else await _holders(c, said.pods, recorded)
    return Installed(
        node_name=c.node_name,
        resources=c.resources,
        node=said.node,
        unknown=said.unknown or (_NEITHER if found is None else ""),
        holders=found or Holders(),
        listed=c.resources.gpu_mem in listed_resources,
        state=disk.state,
        specs=disk.specs,
        sockets=disk.sockets,
        modes=disk.modes,
        mps=await left_by_daemons(c),
        unreadable=tuple(disk.unreadable),
    )


async def _answered(c: DevicePluginConfiguration, api: Transport) -> _Answered:
    try:
        node = await _node(c, api)
        # As the server's cache has them, since every node of a cluster may ask: no pod comes while the plugin is away.
        query = f"resourceVersion=0&fieldSelector={quote(f'spec.nodeName={c.node_name}')}"
        told = await _got(api, f"/api/v1/pods?{query}", "PodList")
        items = msgspec.json.decode(told, type=_PodList).items
    except ApiError as error:
        return _Answered(unknown=f"the API server: {error.message}")
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        return _Answered(unknown=f"the API server's answer cannot be read: {error}")
    return _Answered(node, tuple(filter(None, (_pod(pod, c) for pod in items))))


async def _node(c: DevicePluginConfiguration, api: Transport) -> NodeObject | None:
    try:
        told = await _got(api, f"/api/v1/nodes/{c.node_name}", "Node")
    except ApiNotFound:
        return None
    node = msgspec.json.decode(told, type=objects.Node)
    return NodeObject(
        labels=node.metadata.labels or {},
        annotations=frozenset(node.metadata.annotations or ()),
        capacity=_amounts(node.status.capacity),
        allocatable=_amounts(node.status.allocatable),
    )


async def _got(api: Transport, path: str, kind: str) -> bytes:
    return await api.send(HTTPMethod.GET, path, answers=kind, timeout_s=_ANSWERS_WITHIN_S)


def _amounts(amounts: objects.Quantities | None) -> dict[str, int]:
    return {name: _whole(amount) for name, amount in (amounts or {}).items()}


def _whole(amount: str | float) -> int:
    try:
        return whole(str(amount))
    except QuantityError:
        return 0


def _pod(wire: objects.PodObject, c: DevicePluginConfiguration) -> NodePod | None:
    """None for one that cannot be read, which no API server lets in."""
    try:
        return read_pod(wire, gpu_mem=c.resources.gpu_mem, gpu_count=c.resources.gpu_count)
    except QuantityError:
        return None


def _recorded(c: DevicePluginConfiguration) -> tuple[tuple[CheckpointEntry, ...] | None, frozenset[str]]:
    """The kubelet's entries of our resource, None where they cannot be read; and the resources of its plugins."""
    try:
        text = (Path(c.kubelet.device_plugin_dir) / CHECKPOINT).read_bytes()
        entries = tuple(one for one in checkpoint.parse(text) if one.resource == c.resources.gpu_mem)
        return entries, checkpoint.registered(text)
    except FileNotFoundError:
        return (), frozenset()  # The kubelet has not allocated anything yet.
    except (CheckpointError, OSError):
        return None, frozenset({c.resources.gpu_mem})


async def _holders(
    c: DevicePluginConfiguration, pods: Sequence[NodePod], recorded: tuple[CheckpointEntry, ...] | None
) -> Holders | None:
    """None where the kubelet tells nothing at all: that a pod is not in an answer of the API server says too little."""
    listed = await _listed(c) if recorded is None or unknown_to(pods, recorded) else ()
    return None if recorded is None and listed is None else holders(pods, recorded, listed)


async def _listed(c: DevicePluginConfiguration) -> list[KubeletContainer] | None:
    kubelet = PodResources(Path(c.kubelet.pod_resources_socket), c.resources.gpu_mem)
    try:
        return await kubelet.all(timeout_s=_ANSWERS_WITHIN_S)
    except KubeletSilent:
        return None
    finally:
        await kubelet.close()


def _disk(c: DevicePluginConfiguration) -> _Disk:
    state = Path(c.state_dir)
    found = _Disk(StateDirectory(path=str(state), lock=lock.FILE))
    try:
        if state.is_dir():
            found.state = _state(state, (c.cdi_dir, *c.cdi_spec_dirs))
            found.modes = str(state / compute_modes.FILE) if compute_modes.load(state / compute_modes.FILE) else ""
    except OSError as error:
        found.unreadable.append((c.state_dir, str(error)))
    try:
        found.specs = {str(path): device for path, device in SpecFiles(Path(c.cdi_dir)).written().items()}
    except OSError as error:
        found.unreadable.append((c.cdi_dir, str(error)))
    sockets = (Path(c.kubelet.device_plugin_dir) / SOCKET_NAME, *filter(None, (_control(c),)))
    found.sockets = tuple(str(path) for path in sockets if path.is_socket())
    return found


def _state(state: Path, spec_dirs: Sequence[str]) -> StateDirectory:
    """spec_dirs: where the node has its CDI specs. Raises OSError."""
    entries = {path.name: path.is_dir() and not path.is_symlink() for path in state.iterdir()}
    of_the_node = [path for path in map(Path, spec_dirs) if path.is_dir()]
    ours = {name for name, is_directory in entries.items() if _made(state / name, of_the_node, directory=is_directory)}
    mounted = os.path.ismount(state) or state.is_symlink()
    return StateDirectory(
        path=str(state), lock=lock.FILE, entries=entries, ours=frozenset(ours), there=True, mounted=mounted
    )


def _made(path: Path, of_the_node: Sequence[Path], *, directory: bool) -> bool:
    """Whether the plugin has made it: a mistake in `stateDir` leads to files and directories that are called alike."""
    if not directory:
        return path.name in OURS - _DIRECTORIES.keys()
    if path.name not in _DIRECTORIES or any(path.samefile(one) for one in of_the_node):
        return False
    written = _DIRECTORIES[path.name]
    return all(_is_file(one) if written is None else one.name in written for one in path.iterdir())


def _is_file(path: Path) -> bool:
    return path.is_file() and not path.is_symlink()


def _control(c: DevicePluginConfiguration) -> Path | None:
    return Path(c.simulate_control) if c.simulate_control else None
