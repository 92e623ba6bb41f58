"""Finds everything that the plugin has put on the node, on the node object and in files. Changes nothing."""

import asyncio
import contextlib
import os
import re
from http import HTTPMethod
from pathlib import Path
from typing import Final
from urllib.parse import quote

import msgspec

from config.protocol.isolation import MPS
from config.protocol.quantity import QuantityError
from config.settings.deviceplugin import DevicePluginConfiguration
from config.settings.isolation import MPS_SERVER
from config.settings.mistakes import ConfigurationError
from deviceplugin import lock
from deviceplugin.allocation import journal
from deviceplugin.allocation.pods import NodePod, read_pod
from deviceplugin.backends import GENERATED, GENERATED_SPEC, SIMULATED_CARDS
from deviceplugin.cdi.spec_files import SpecFiles
from deviceplugin.files import temporary
from deviceplugin.health import record, releases
from deviceplugin.isolation import compute_modes, fill, kind, make
from deviceplugin.isolation.kind import KindFile
from deviceplugin.isolation.make import mechanisms_of
from deviceplugin.isolation.mps_control import ControlFailed, ControlSilent, MpsControl
from deviceplugin.isolation.mps_namespaces import control_of
from deviceplugin.kubelet import checkpoint, session
from deviceplugin.kubelet.checkpoint import CheckpointEntry, CheckpointError, KubeletContainer
from deviceplugin.kubelet.client import KubeletSilent, PodResources
from deviceplugin.kubelet.server import SOCKET_NAME
from deviceplugin.kubelet.session import CHECKPOINT
from deviceplugin.node import starts
from deviceplugin.uninstall.plan import POD_HOLDS, Found, Item, ItemKind, holders, node_items, unknown_to
from scheduler.kube import objects
from scheduler.kube.port import ApiError, ApiNotFound
from scheduler.kube.rest.transport import Transport

_ANSWERS_WITHIN_S: Final = 10.0
_DAEMON_ANSWERS_WITHIN_S: Final = 5.0
_CARD: Final = re.compile(r"GPU-[-0-9A-Za-z]{1,60}", re.ASCII)
_FILES: Final = (
    *(lock.FILE, journal.FILE, session.FILE, starts.FILE, record.FILE, record.INVENTORY_FILE, releases.SOCKET),
    *(compute_modes.FILE, kind.FILE),
)
# Directory -> files that the plugin writes there; None: files with any name.
_DIRECTORIES: Final = {
    make.DIRECTORY: frozenset({fill.PODS, fill.NODE}),
    GENERATED: frozenset({GENERATED_SPEC}),
    SIMULATED_CARDS: None,
}
# Includes unfinished files of a killed plugin.
OURS: Final = frozenset({*_FILES, *_DIRECTORIES, *(temporary(Path(name)).name for name in _FILES)})


class _PodList(msgspec.Struct):
    items: tuple[objects.PodObject, ...] = ()


async def look(c: DevicePluginConfiguration, api: Transport | str, *, force: bool) -> Found:
    """Return all items of the plugin. api: the API server, or why it is unavailable. force: ignore pods with cards."""
    try:
        of_node, pods, unknown = await _known(c, api)
    except (ApiError, msgspec.DecodeError, UnicodeError, RecursionError, QuantityError) as error:
        unknown = f"the API server: {error}"
        of_node, pods = [Item(ItemKind.NAMED, f"node {c.node_name}", unknown)], ()
    needed = POD_HOLDS if pods else ""
    if unknown:
        needed = f"it is unknown which pods hold cards: {unknown}"
    files, last = await asyncio.to_thread(_files, c, needed := "" if force else needed)
    of_daemons = [Item(ItemKind.TREE, str(path), needed) for path in await _left_by_daemons(c)]
    return Found((*of_node, *of_daemons, *files), last, pods)


async def _known(c: DevicePluginConfiguration, api: Transport | str) -> tuple[list[Item], tuple[str, ...], str]:
    """Return (items of the node object, pods that hold cards, why these are unknown). Raises ApiError and others."""
    if isinstance(api, str):
        raise ApiError(api)
    node, pods = await _node(c, api), await _pods(c, api)
    recorded, registered = await asyncio.to_thread(_recorded, c)
    items = list(node_items(node, c.resources, registered=registered)) if node else []
    if recorded is None:
        return items, (), "the kubelet's checkpoint cannot be read"
    return items, holders(pods, recorded, await _listed(c) if unknown_to(pods, recorded) else ()), ""


async def _node(c: DevicePluginConfiguration, api: Transport) -> objects.Node | None:
    try:
        return msgspec.json.decode(await _got(api, f"/api/v1/nodes/{c.node_name}", "Node"), type=objects.Node)
    except ApiNotFound:
        return None


async def _pods(c: DevicePluginConfiguration, api: Transport) -> list[NodePod]:
    """List the node's pods from the server's cache, because all nodes may ask at once.

    A stale answer is safe: no pod arrives while the plugin is away.
    """
    query = f"resourceVersion=0&fieldSelector={quote(f'spec.nodeName={c.node_name}')}"
    told = msgspec.json.decode(await _got(api, f"/api/v1/pods?{query}", "PodList"), type=_PodList)
    return [read_pod(pod, gpu_mem=c.resources.gpu_mem, gpu_count=c.resources.gpu_count) for pod in told.items]


async def _got(api: Transport, path: str, kind: str) -> bytes:
    return await api.send(HTTPMethod.GET, path, answers=kind, timeout_s=_ANSWERS_WITHIN_S)


def _recorded(c: DevicePluginConfiguration) -> tuple[list[CheckpointEntry] | None, bool]:
    """Return the kubelet's entries of our resource (None if unreadable), and whether it lists a plugin for it."""
    gpu_mem = c.resources.gpu_mem
    try:
        text = (Path(c.kubelet.device_plugin_dir) / CHECKPOINT).read_bytes()
        entries = [one for one in checkpoint.parse(text) if one.resource == gpu_mem]
        return entries, gpu_mem in checkpoint.registered(text)
    except FileNotFoundError:
        return [], False  # The kubelet has not allocated anything yet.
    except (CheckpointError, OSError):
        return None, True


async def _listed(c: DevicePluginConfiguration) -> list[KubeletContainer] | None:
    """Return the containers that the kubelet lists; None if it does not answer."""
    kubelet = PodResources(Path(c.kubelet.pod_resources_socket), c.resources.gpu_mem)
    try:
        return await kubelet.all(timeout_s=_ANSWERS_WITHIN_S)
    except KubeletSilent:
        return None
    finally:
        await kubelet.close()


async def _left_by_daemons(c: DevicePluginConfiguration) -> list[Path]:
    """Return the directories of the plugin's ended MPS daemons.

    A daemon that still answers belongs to another owner.
    """
    left: list[Path] = []
    for uuid in await asyncio.to_thread(_cards_with_daemons, c):
        control = MpsControl(c.mps, uuid)
        try:
            protocol = 3 if (control.pipes / MPS_SERVER).is_dir() else 2
            await control_of(c.mps, uuid, protocol).ask(_DAEMON_ANSWERS_WITHIN_S)
        except ControlSilent:
            continue  # There may be one.
        except ControlFailed:
            left += [path for path in (control.pipes, control.logs) if path.is_dir()]
    return left


def _cards_with_daemons(c: DevicePluginConfiguration) -> list[str]:
    with contextlib.suppress(ConfigurationError):  # Without its description, it is unknown whether there were any.
        mechanisms = mechanisms_of(c, KindFile(Path(c.state_dir)).load()).values()
        if any(one.preparation == MPS for one in mechanisms) and c.mps.daemons == "plugin":
            return sorted(path.name for path in Path(c.mps.directory).glob("*") if _CARD.fullmatch(path.name))
    return []


def _files(c: DevicePluginConfiguration, needed: str) -> tuple[list[Item], tuple[Item, ...]]:
    """Return (items, the last items). needed: why files that containers may use stay; "" if none does."""
    sockets = [Path(c.kubelet.device_plugin_dir) / SOCKET_NAME, *map(Path, filter(None, (c.simulate_control,)))]
    items = [Item(ItemKind.FILE, str(path)) for path in sockets if path.is_socket()]
    last: tuple[Item, ...] = ()
    try:
        items += [Item(ItemKind.FILE, str(path), needed) for path in sorted(SpecFiles(Path(c.cdi_dir)).written())]
    except OSError as error:
        items.append(Item(ItemKind.UNREADABLE, c.cdi_dir, f"it cannot be read: {error}"))
    try:
        of_state, last = _of_state(c, Path(c.state_dir))
        # All or nothing: an operator who changes course finds the journal and the health of cards.
        items += [Item(ItemKind.TREE, c.state_dir, needed)] if needed and of_state else of_state
    except OSError as error:
        items.append(Item(ItemKind.UNREADABLE, c.state_dir, f"it cannot be read: {error}"))
    return items, last


def _of_state(c: DevicePluginConfiguration, state: Path) -> tuple[list[Item], tuple[Item, ...]]:
    """Return the items below the state directory. Raises OSError."""
    if not state.is_dir():
        return [], ()
    of_the_node = [path for path in map(Path, (c.cdi_dir, *c.cdi_spec_dirs)) if path.is_dir()]
    entries = sorted(state.iterdir())
    items = [_entry(path, of_the_node) for path in entries if path.name != lock.FILE]
    last = [Item(ItemKind.FILE, str(path)) for path in entries if path.name == lock.FILE]
    if state.is_symlink() or os.path.ismount(state):
        why = "it is a link or a mount of this container, and no longer contains files of the plugin"
        items.append(Item(ItemKind.FOLDER, str(state), why, theirs=True))
    elif not any(item.theirs for item in items):
        last.append(Item(ItemKind.FOLDER, str(state)))
    return items, tuple(last)


def _entry(path: Path, of_the_node: list[Path]) -> Item:
    """Return the item for an entry of the state directory. A name is no proof, because `stateDir` may be wrong."""
    directory = path.is_dir() and not path.is_symlink()
    if directory and path.name in _DIRECTORIES and not any(path.samefile(one) for one in of_the_node):
        written = _DIRECTORIES[path.name]
        if all(_is_file(one) if written is None else one.name in written for one in path.iterdir()):
            return Item(ItemKind.TREE, str(path))
    elif not directory and path.name in OURS - _DIRECTORIES.keys():
        return Item(ItemKind.MODES if path.name == compute_modes.FILE else ItemKind.FILE, str(path))
    return Item(ItemKind.FILE, str(path), "it was not written by the plugin", theirs=True)


def _is_file(path: Path) -> bool:
    return path.is_file() and not path.is_symlink()
