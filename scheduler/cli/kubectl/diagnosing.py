"""`kubectl gpushare doctor`: reads what the checks look at. What may not be read is one of the findings."""

import contextlib
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime

import msgspec

from config.settings.scheduler import SchedulerConfiguration, resolve
from scheduler.build import resource_names
from scheduler.cli.asking import read_all
from scheduler.cli.clusters import opened
from scheduler.cli.manifests import Unreadable
from scheduler.explain.cluster_checks import PLUGIN_LABEL
from scheduler.explain.facts import ClusterFacts
from scheduler.kube import objects
from scheduler.kube.leases import Lease
from scheduler.kube.port import NODES, PODS, ApiError, ApiSilent, Changed, Cluster, Kind, T, WatchEvent, lease_kind
from scheduler.kube.versions import ServerVersion


class _Condition(msgspec.Struct, rename="camel", frozen=True):
    type: str
    status: str
    last_transition_time: str | None = None


class _Status(msgspec.Struct, rename="camel", frozen=True):
    conditions: tuple[_Condition, ...] = ()


class Pod(objects.ApiObject, frozen=True):
    """v1.Pod, as far as it says since when it is ready or not."""

    spec: objects.PodSpec = objects.PodSpec()
    status: _Status = _Status()


async def facts(configuration: SchedulerConfiguration, environment: Mapping[str, str]) -> ClusterFacts:
    """Of the cluster of the kubeconfig. Raises Unreadable when nothing can be read."""
    async with opened(configuration, environment) as cluster:
        return await read_facts(cluster, configuration, cluster.server_version, datetime.now(UTC))


async def read_facts(
    cluster: Cluster,
    configuration: SchedulerConfiguration,
    server_version: Callable[[], Awaitable[ServerVersion]],
    now: datetime,
) -> ClusterFacts:
    """now: by this machine's clock. Raises Unreadable when nothing can be read."""
    unread: dict[str, str] = {}
    version: ServerVersion | None = None
    with _noting(unread, "version"):
        version = await server_version()
    nodes = await _read(cluster, NODES, unread)
    pods = await _read(cluster, PODS, unread)
    election = configuration.leader_election
    leases: Sequence[Lease] = ()
    if election.leader_elect:
        leases = await _read(cluster, lease_kind(election.resource_namespace, election.resource_name), unread)
    lease = next(iter(leases), None)
    return ClusterFacts(
        nodes=nodes,
        pods=pods,
        resources=resource_names(configuration),
        unit_mib=configuration.memory_unit_mib,
        scheduler_names=frozenset(name for profile in resolve(configuration) for name in profile.scheduler_names),
        lease_name=f"{election.resource_namespace}/{election.resource_name}" if election.leader_elect else "",
        lease=lease,
        lease_age_s=_age_s(lease, now),
        version=version,
        away_since=await _away_since(cluster, pods, unread),
        unread=unread,
    )


async def _read(cluster: Cluster, kind: Kind[T], unread: dict[str, str]) -> Sequence[T]:
    found: list[T] = []

    def note(events: Sequence[WatchEvent[T]]) -> None:
        found.extend(event.object for event in events if isinstance(event, Changed))

    with _noting(unread, kind.name):
        await read_all(cluster, kind, note)
    return found


@contextlib.contextmanager
def _noting(unread: dict[str, str], what: str) -> Iterator[None]:
    """A server that is silent says nothing of the rest either."""
    try:
        yield
    except ApiSilent as error:
        raise Unreadable(error.message) from error
    except ApiError as error:
        unread[what] = error.message


async def _away_since(cluster: Cluster, pods: Sequence[objects.Pod], unread: dict[str, str]) -> dict[str, str]:
    """Node -> since when the device plugin's pod there is not ready."""
    key, value = PLUGIN_LABEL
    namespaces = {pod.metadata.namespace for pod in pods if (pod.metadata.labels or {}).get(key) == value}
    since: dict[str, str] = {}
    for namespace in sorted(namespaces):
        kind = Kind("pods of the device plugin", Pod, f"/api/v1/namespaces/{namespace}/pods")
        for pod in await _read(cluster, kind, unread):
            ready = next((one for one in pod.status.conditions if one.type == "Ready"), None)
            is_plugin = (pod.metadata.labels or {}).get(key) == value
            if is_plugin and pod.spec.node_name and ready is not None and ready.status != "True":
                since[pod.spec.node_name] = ready.last_transition_time or "an unknown time"
    return since


def _age_s(lease: Lease | None, now: datetime) -> float | None:
    if lease is None:
        return None
    try:
        return (now - datetime.fromisoformat(lease.spec.renew_time or "")).total_seconds()
    except (ValueError, TypeError, OverflowError):
        return None
