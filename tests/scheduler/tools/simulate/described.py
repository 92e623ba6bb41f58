"""Clusters as a file would describe them, and what becomes of them."""

from typing import Any

from config.clusterfile.model import ClusterDocument, ClusterFile
from config.protocol import names
from config.settings.scheduler import SchedulerConfiguration
from scheduler.core.build import build_engine
from scheduler.core.engine import Engine
from scheduler.pods.gpu_request import ResourceNames
from scheduler.pods.pod import PodReader
from scheduler.tools.simulate.replay import replay
from scheduler.tools.simulate.report import Report
from scheduler.tools.simulate.timeline import Step, timeline


def node(name: str, *units: int, **fields: object) -> dict[str, Any]:
    """A node with one card of model M per number of units. fields: more of what a cluster file says of it."""
    return {"name": name, "cards": [{"model": "M", "memoryMiB": 1024 * own} for own in units], **fields}


def pod(
    name: str,
    units: int = 0,
    *,
    at_s: float = 0.0,
    runs_s: float | None = None,
    metadata: dict[str, object] | None = None,
    status: dict[str, object] | None = None,
    **spec: object,
) -> dict[str, Any]:
    """A pod for this scheduler, in a cluster file. metadata, status, spec: more of its manifest."""
    limits = {names.GPU_MEM: units} if units else {}
    asks = {"schedulerName": names.SCHEDULER_NAME, "containers": [{"name": "c", "resources": {"limits": limits}}]}
    manifest = {"metadata": {"name": name, **(metadata or {})}, "spec": asks | spec, "status": status or {}}
    return {"at_s": at_s, "runs_s": runs_s, "pod": manifest}


def described(
    nodes: list[dict[str, Any]], pods: list[dict[str, Any]] | None = None, faults: list[dict[str, Any]] | None = None
) -> ClusterFile:
    parts = {"nodes": nodes, "pods": pods or [], "faults": faults or []}
    document = ClusterDocument.model_validate(parts, by_alias=True, by_name=False)
    return ClusterFile([*document.nodes], [*document.pods], [*document.faults])


def steps(
    nodes: list[dict[str, Any]], pods: list[dict[str, Any]] | None = None, faults: list[dict[str, Any]] | None = None
) -> list[Step]:
    return timeline(described(nodes, pods, faults), ResourceNames(), 1024)


def replayed(
    nodes: list[dict[str, Any]], pods: list[dict[str, Any]] | None = None, faults: list[dict[str, Any]] | None = None
) -> Report:
    return replayed_file(described(nodes, pods, faults))


def replayed_file(
    cluster: ClusterFile,
    built: tuple[Engine, PodReader] | None = None,
    **options: Any,  # noqa: ANN401 - as `replay`
) -> Report:
    """built: with the default configuration where it is left out."""
    built = built or build_engine(SchedulerConfiguration(), preempts=False)
    return replay(cluster, built, resources=ResourceNames(), unit_mib=1024, **options)
