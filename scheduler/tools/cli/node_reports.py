"""Reports of device plugins about their nodes: the isolation that they were started with, and memory in use.

The isolation comes from their pods and ConfigMaps; the memory comes from their metrics, read through the API server.
Anything that cannot be read is unknown: an answer needs neither.
"""

import asyncio
import contextlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Final

from config.protocol.isolation import HAMI_CORE, MPS, OWN
from config.settings.plainyaml import DocumentError, parse
from scheduler.kube import objects
from scheduler.kube.port import ApiError, ApiForbidden, Cluster, Kind
from scheduler.kube.rest.client import KubeCluster
from scheduler.tools.cli.asking import all_of
from scheduler.tools.cli.cluster_configuration import ConfigSource, ProgramSpec, source_of, text_of
from scheduler.tools.doctor.facts import PLUGIN_LABEL
from scheduler.tools.explain.held import NONE

USED: Final = "gpushare_device_plugin_container_memory_used_bytes"
_MIB: Final = 1 << 20
_ANSWER_S: Final = 3.0
# For all plugins together: without it, each one that does not answer would take the time above, a few at a time.
_ALL_ANSWERS_S: Final = 10.0
_AT_A_TIME: Final = 16


class PluginPod(objects.ApiObject, frozen=True):
    """v1.Pod of a device plugin."""

    API_KIND: ClassVar[str] = "Pod"
    spec: ProgramSpec = ProgramSpec()


PLUGIN_PODS: Final = Kind("pods of the device plugin", PluginPod, "/api/v1/pods", label_selector="=".join(PLUGIN_LABEL))


@dataclass(frozen=True, slots=True)
class NodeReports:
    """Reports of nodes. isolation: by node. used_mib: by namespace and name of a pod.

    unread: what is missing, in sentences.
    """

    isolation: Mapping[str, str] = field(default_factory=dict[str, str])
    used_mib: Mapping[tuple[str, str], int] = field(default_factory=dict[tuple[str, str], int])
    unread: Sequence[str] = ()


async def node_reports(cluster: KubeCluster, nodes: Collection[str]) -> NodeReports:
    """Return the reports of these nodes."""
    plugins = await _plugins(cluster, nodes)
    return NodeReports(await _isolation(cluster, plugins), *(await _used(cluster, plugins)))


async def isolations(cluster: Cluster, nodes: Collection[str]) -> NodeReports:
    """Return the reports of these nodes without the memory in use."""
    return NodeReports(await _isolation(cluster, await _plugins(cluster, nodes)))


async def _plugins(cluster: Cluster, nodes: Collection[str]) -> list[PluginPod]:
    try:
        return [pod for pod in await all_of(cluster, PLUGIN_PODS) if pod.spec.node_name in nodes]
    except ApiError:
        return []


async def _isolation(cluster: Cluster, plugins: Collection[PluginPod]) -> dict[str, str]:
    """Return the isolation by node; reads each ConfigMap once."""
    read: dict[tuple[str, ConfigSource | None], str] = {}
    found: dict[str, str] = {}
    for pod in plugins:
        key = (pod.metadata.namespace, source_of(pod.spec))
        if key not in read:
            read[key] = await _mechanism(cluster, *key)
        found[pod.spec.node_name] = read[key]
    return found


async def _mechanism(cluster: Cluster, namespace: str, source: ConfigSource | None) -> str:
    """Return `isolation` from a plugin's configuration; "" if it cannot be read."""
    if source is None:
        return NONE
    try:
        written = await text_of(cluster, namespace, source)
        if written is None:
            return ""
        documents = parse(written.text)
    except (ApiError, DocumentError):
        return ""
    named = [one["isolation"] for one in documents if isinstance(one, dict) and isinstance(one.get("isolation"), str)]
    if named and named[0].startswith("/"):
        return OWN
    # What the driver enforces is only in the inventory: whether it does is found out on the node.
    return named[0] if named and named[0] in {MPS, HAMI_CORE} else NONE


async def _used(
    cluster: KubeCluster, plugins: Collection[PluginPod]
) -> tuple[dict[tuple[str, str], int], tuple[str, ...]]:
    """Return (MiB in use by the pod's namespace and name, sentences about missing values).

    Stops at the first denial: other plugins would be denied as well.
    """
    found, slots, denied = dict[tuple[str, str], int](), asyncio.Semaphore(_AT_A_TIME), list[ApiError]()

    async def ask(pod: PluginPod, port: int) -> None:
        async with slots:
            if denied:
                return
            try:
                meta = pod.metadata
                text = await cluster.page_of_pod(meta.namespace, meta.name, port, "metrics", _ANSWER_S)
                found.update(used_mib(text))
            except ApiForbidden as error:
                denied.append(error)
            except ApiError:
                return

    try:
        async with asyncio.timeout(_ALL_ANSWERS_S), asyncio.TaskGroup() as tasks:
            for pod in plugins:
                if pod.spec.ports:
                    tasks.create_task(ask(pod, pod.spec.ports[0]))
    except TimeoutError:
        return found, (f"some device plugins did not answer within {_ALL_ANSWERS_S:g} s: USED is incomplete",)
    return found, ()


def used_mib(text: str) -> dict[tuple[str, str], int]:
    """Return MiB by namespace and name of each pod, from the metrics of a device plugin; {} for other text."""
    from prometheus_client.parser import text_string_to_metric_families  # noqa: PLC0415 - slow to import

    used: dict[tuple[str, str], float] = {}
    with contextlib.suppress(ValueError):
        for family in text_string_to_metric_families(text):
            for sample in family.samples if family.name == USED else ():
                key = sample.labels.get("namespace", ""), sample.labels.get("pod", "")
                used[key] = used.get(key, 0.0) + sample.value
    return {key: round(value / _MIB) for key, value in used.items()}
