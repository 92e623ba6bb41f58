"""Gathers all facts about this node: files, driver, the plugin's status, the API server. Changes nothing."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from http import HTTPMethod
from pathlib import Path
from typing import Final
from urllib.parse import quote

import msgspec

from config.protocol import names
from config.protocol.inventory import Health
from config.protocol.quantity import QuantityError, whole
from config.settings.deviceplugin import DevicePluginConfiguration
from deviceplugin.allocation.pods import read_pod
from deviceplugin.cdi.host_nodes import HostNodes
from deviceplugin.cdi.mode import Coverage, brings_nvml
from deviceplugin.cdi.nvidia_spec import hookless, uncovered
from deviceplugin.cdi.spec_files import NvidiaSpecTree
from deviceplugin.doctor.facts import Facts, NodeFacts, PodFacts
from deviceplugin.driver.cards import MIG, CardReading, Driver, DriverCards, SourceFailed
from deviceplugin.driver.cuda import CudaAnswer
from deviceplugin.health.rules import RELEASED
from deviceplugin.isolation.host_cgroup import cgroup_problem
from deviceplugin.kubelet import checkpoint
from deviceplugin.kubelet.checkpoint import CheckpointError
from deviceplugin.report.status import DevicePluginStatus
from deviceplugin.report.status_page import StatusUnknown, ask_status
from scheduler.kube import objects
from scheduler.kube.port import ApiError
from scheduler.kube.rest.client_config.connect import ConnectError, connect
from scheduler.kube.rest.transport import Transport

_ANSWERS_WITHIN_S: Final = 10.0
_MOUNTINFO: Final = Path("/proc/self/mountinfo")
_KUBELET_SOCKET: Final = "kubelet.sock"
_CHECKPOINT: Final = "kubelet_internal_checkpoint"
_DECIDING: Final = (names.ALLOCATION, names.MEM_IDX)


class _PodList(msgspec.Struct):
    items: tuple[objects.PodObject, ...] = ()


async def examine(
    configuration: DevicePluginConfiguration,
    environment: Mapping[str, str],
    driver: Driver,
    *,
    status_at: str,
    mountinfo: Path = _MOUNTINFO,
) -> Facts:
    """Gather the facts, then close the driver. status_at: host:port of this node's plugin.

    mountinfo: path of this container's mountinfo.
    """
    c = configuration
    status, status_problem = await _status(status_at)
    asked = await ask_driver(driver, trying=not _released(status))
    found = asked.found
    specs = await asyncio.to_thread(_specs, c, found)
    facts = Facts(
        node_name=c.node_name,
        mode=c.mode,
        simulated=bool(c.simulate),
        isolation=c.isolation,
        enforcement=c.enforcement,
        cgroup_problem=await asyncio.to_thread(cgroup_problem, Path(c.host_cgroup)),
        driver=found.driver,
        driver_problem=asked.problem,
        cards=found.cards,
        cuda=asked.cuda,
        readings=asked.readings,
        nvidia_runtime=brings_nvml(await asyncio.to_thread(mountinfo.read_text, "utf-8", "replace")),
        missing=_missing(c),
        checkpoint_problem=await asyncio.to_thread(_checkpoint_problem, c),
        node=await _node(c, environment),
        status=status,
        status_problem=status_problem,
    )
    coverage, bare, problems = specs
    # Outside the plugin's container, the plugin knows better which runtime runs it.
    runtime = facts.nvidia_runtime or bool(status and status.nvidia_runtime)
    found_of_specs = replace(facts, spec_problems=problems, hookless=bare, nvidia_runtime=runtime)
    return found_of_specs if c.simulate else replace(found_of_specs, lacking=coverage.lacking, some=coverage.some)


@dataclass(slots=True)
class AskedDriver:
    """Answers of the driver. problem: why it did not answer. cuda: answers of cuInit, for the cards that were tried."""

    found: DriverCards = field(default_factory=lambda: DriverCards("", ()))
    problem: str = ""
    readings: dict[str, CardReading] = field(default_factory=dict)
    cuda: dict[str, CudaAnswer] = field(default_factory=dict)


async def ask_driver(driver: Driver, *, trying: bool) -> AskedDriver:
    """Query the driver, try CUDA if `trying`, and close the driver."""
    asked = AskedDriver()
    try:
        asked.found = await driver.cards()
        answers = await driver.readings(card.uuid for card in asked.found.cards if not card.parent)
        asked.readings = {uuid: one for uuid, one in answers.items() if isinstance(one, CardReading)}
        whole = (card.uuid for card in asked.found.cards if not (card.mig or card.parent))
        for uuid in filter(asked.readings.get, whole) if trying and driver.tries_cuda else ():
            asked.cuda[uuid] = await driver.cuda(uuid)
            if asked.cuda[uuid].code is None:
                break  # If one hangs, others may too; if libcuda is missing, all answer alike.
    except SourceFailed as error:
        asked.problem = str(error)
    finally:
        await driver.close()
    return asked


def _released(status: DevicePluginStatus | None) -> bool:
    """Return whether a card is released: CUDA must then not be tried, because it may open every card that it finds."""
    return any(
        card.reason == RELEASED or (card.reason == MIG and card.health == Health.SUSPECT)
        for card in (status.cards if status else ())
    )


async def _status(address: str) -> tuple[DevicePluginStatus | None, str]:
    try:
        return await ask_status(address), ""
    except StatusUnknown as error:
        return None, str(error)


def _specs(c: DevicePluginConfiguration, found: DriverCards) -> tuple[Coverage, frozenset[str], tuple[str, ...]]:
    """Return (coverage of the cards by the specs, cards without the hook for limits, specs that cannot be read)."""
    generated = Path(c.state_dir) / "cdi"
    specs = NvidiaSpecTree([generated, *(Path(directory) for directory in c.cdi_spec_dirs)]).read()
    cards = [card for card in found.cards if not card.mig]
    nodes = HostNodes(Path(c.host_dev), proc=Path(c.host_proc))
    reasons = uncovered(cards, specs.specs, driver=found.driver, lacks=nodes.lacks, caps=nodes.caps)
    limitable = [card for card in cards if card.limits]
    bare = hookless(limitable, specs.specs, driver=found.driver, lacks=nodes.lacks)
    return Coverage.of(len(cards), reasons, "; ".join(reasons.values())), bare, specs.problems


def _missing(c: DevicePluginConfiguration) -> dict[str, str]:
    wanted = {
        str(Path(c.kubelet.device_plugin_dir) / _KUBELET_SOCKET): "the kubelet registers device plugins there",
        c.kubelet.pod_resources_socket: "it lists the pods that the kubelet has admitted",
    }
    return {path: what for path, what in wanted.items() if not Path(path).exists()}


def _checkpoint_problem(c: DevicePluginConfiguration) -> str:
    try:
        checkpoint.parse((Path(c.kubelet.device_plugin_dir) / _CHECKPOINT).read_bytes())
    except FileNotFoundError:
        return ""  # The kubelet has not allocated anything yet.
    except (CheckpointError, OSError) as error:
        return str(error)
    return ""


async def _node(c: DevicePluginConfiguration, environment: Mapping[str, str]) -> NodeFacts:
    wanted = c.client_connection
    try:
        connection = await connect(environment, kubeconfig=wanted.kubeconfig, context=wanted.context)
    except ConnectError as error:
        return NodeFacts(problem=str(error))
    transport = Transport(connection, 2)
    try:
        return await _read_node(c, transport)
    except ApiError as error:
        return NodeFacts(problem=f"node {c.node_name}: {error.message}")
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        return NodeFacts(problem=f"node {c.node_name}: the answer cannot be read: {error}")
    finally:
        await transport.close()


async def _read_node(c: DevicePluginConfiguration, transport: Transport) -> NodeFacts:
    async def get(path: str, kind: str) -> bytes:
        return await transport.send(HTTPMethod.GET, path, answers=kind, timeout_s=_ANSWERS_WITHIN_S)

    node = msgspec.json.decode(await get(f"/api/v1/nodes/{c.node_name}", "Node"), type=objects.Node)
    selector = quote(f"spec.nodeName={c.node_name},status.phase!=Succeeded,status.phase!=Failed")
    pods = msgspec.json.decode(await get(f"/api/v1/pods?fieldSelector={selector}", "PodList"), type=_PodList)
    annotations = node.metadata.annotations or {}
    info = node.status.node_info or objects.NodeInfo()
    return NodeFacts(
        labels=node.metadata.labels or {},
        runtime_version=info.container_runtime_version,
        kubelet_version=info.kubelet_version,
        capacity=_amount(node.status.capacity, c.resources.gpu_mem),
        allocatable=_amount(node.status.allocatable, c.resources.gpu_mem),
        announced=names.INVENTORY in annotations,
        pods=tuple(filter(None, (_pod(pod, c) for pod in pods.items))),
    )


def _amount(amounts: objects.Quantities | None, resource: str) -> int:
    try:
        return whole(str((amounts or {}).get(resource, 0)))
    except QuantityError:
        return 0


def _pod(wire: objects.PodObject, c: DevicePluginConfiguration) -> PodFacts | None:
    """Return the facts about the pod; None if it requests no gpu-mem or cannot be read."""
    try:
        pod = read_pod(wire, gpu_mem=c.resources.gpu_mem, gpu_count=c.resources.gpu_count)
    except QuantityError:
        return None
    if not pod.asking():
        return None
    scheduled = any(key in pod.annotations for key in _DECIDING)
    return PodFacts(f"{pod.namespace}/{pod.name}", pod.scheduler or "not set", pod.runtime_class, scheduled)
