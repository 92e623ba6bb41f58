"""`kubectl gpushare doctor`: reads the input of the checks. Missing rights are reported as findings."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any, ClassVar, Final

import msgspec

from config.settings.scheduler import SchedulerConfiguration, resolve
from scheduler.core.build import resource_names
from scheduler.kube import objects
from scheduler.kube.leases import Lease
from scheduler.kube.port import (
    NODES,
    PODS,
    ApiError,
    ApiNotFound,
    ApiSilent,
    Cluster,
    Kind,
    T,
    lease_kind,
)
from scheduler.kube.versions import ServerVersion
from scheduler.tools.cli.asking import all_of
from scheduler.tools.cli.manifests import Unreadable
from scheduler.tools.cli.session import session
from scheduler.tools.cli.target import Target
from scheduler.tools.doctor.facts import PLUGIN_LABEL, ClusterFacts

# Share of the Lease's duration, which its writer may set to any number.
_LOOKED_AT_AGAIN: Final = 1 / 3
_AT_MOST_S: Final = 10.0


class _Condition(msgspec.Struct, rename="camel", frozen=True):
    type: str
    status: str
    last_transition_time: str | None = None


class _Status(msgspec.Struct, rename="camel", frozen=True):
    conditions: tuple[_Condition, ...] = ()


class PodReadiness(objects.ApiObject, frozen=True):
    """v1.Pod, limited to the fields with the time of its readiness."""

    API_KIND: ClassVar[str] = "Pod"
    spec: objects.PodSpec = objects.PodSpec()
    status: _Status = _Status()


class ValidatingAdmissionPolicy(objects.ApiObject, frozen=True):
    """admissionregistration.k8s.io/v1: only its existence is read."""


class _BindingSpec(msgspec.Struct, rename="camel", frozen=True):
    policy_name: str = ""
    validation_actions: tuple[str, ...] = ()
    match_resources: dict[str, Any] | None = None

    @property
    def refuses_everywhere(self) -> bool:
        narrowing = {key for key, said in (self.match_resources or {}).items() if said and key != "matchPolicy"}
        return "Deny" in self.validation_actions and not narrowing


class ValidatingAdmissionPolicyBinding(objects.ApiObject, frozen=True):
    """admissionregistration.k8s.io/v1: where a policy applies, and its effect."""

    spec: _BindingSpec = _BindingSpec()


_GROUP: Final = "/apis/admissionregistration.k8s.io/v1"
_POLICIES: Final = Kind("policies", ValidatingAdmissionPolicy, f"{_GROUP}/validatingadmissionpolicies")
_BINDINGS: Final = Kind("policies", ValidatingAdmissionPolicyBinding, f"{_GROUP}/validatingadmissionpolicybindings")


async def facts(target: Target) -> ClusterFacts:
    """Return the facts of the flags' cluster. Raises Unreadable if nothing can be read."""
    async with session(target) as of:
        return await read_facts(of.cluster, of.configuration, of.cluster.server_version, datetime.now(UTC))


async def read_facts(
    cluster: Cluster,
    configuration: SchedulerConfiguration,
    server_version: Callable[[], Awaitable[ServerVersion]],
    now: datetime,
) -> ClusterFacts:
    """Read the facts. now: by this machine's clock. Raises Unreadable if nothing can be read."""
    unread: dict[str, str] = {}
    version: ServerVersion | None = None
    with _noting(unread, "version"):
        version = await server_version()
    nodes = await _read(cluster, NODES, unread)
    pods = await _read(cluster, PODS, unread)
    election = configuration.leader_election
    lease, is_renewed = None, False
    if election.leader_elect:
        kind = lease_kind(election.resource_namespace, election.resource_name)
        lease, is_renewed = await _lease(cluster, kind, now, unread)
    return ClusterFacts(
        nodes=nodes,
        pods=pods,
        resources=resource_names(configuration),
        unit_mib=configuration.memory_unit_mib,
        scheduler_names=frozenset(name for profile in resolve(configuration) for name in profile.scheduler_names),
        lease_name=f"{election.resource_namespace}/{election.resource_name}" if election.leader_elect else "",
        lease=lease,
        lease_age_s=_age_s(lease, now),
        lease_is_renewed=is_renewed,
        policies=await _policies(cluster, unread),
        version=version,
        away_since=await _away_since(cluster, pods, unread),
        waiting_s=_waiting_s(pods, now),
        unread=unread,
    )


async def _read(cluster: Cluster, kind: Kind[T], unread: dict[str, str]) -> Sequence[T]:
    with _noting(unread, kind.name):
        return await all_of(cluster, kind)
    return ()


@contextlib.contextmanager
def _noting(unread: dict[str, str], what: str) -> Iterator[None]:
    """Record an unreadable kind. A server that does not answer ends all reading."""
    try:
        yield
    except ApiSilent as error:
        raise Unreadable(error.message) from error
    except ApiError as error:
        unread[what] = error.message


async def _lease(
    cluster: Cluster, kind: Kind[Lease], now: datetime, unread: dict[str, str]
) -> tuple[Lease | None, bool]:
    """Return (the Lease, whether its holder renews it).

    The renewal time is from the holder's clock, which may be fast or slow. So if the Lease seems to have expired, it is
    read again a little later: an active holder renews it often.
    """
    first = next(iter(await _read(cluster, kind, unread)), None)
    if first is None or not first.spec.holder_identity:
        return first, False
    age_s, lasts_s = _age_s(first, now), first.spec.lease_duration_seconds
    if age_s is not None and 0 <= age_s <= lasts_s:
        return first, True
    await asyncio.sleep(min(lasts_s * _LOOKED_AT_AGAIN, _AT_MOST_S))
    again = next(iter(await _read(cluster, kind, unread)), None)
    return again, again is not None and again.spec != first.spec


async def _policies(cluster: Cluster, unread: dict[str, str]) -> dict[str, bool] | None:
    """Return by name whether a binding enforces the policy everywhere. None if the server has no such API."""
    with _noting(unread, "policies"):
        try:
            there, bindings = await all_of(cluster, _POLICIES), await all_of(cluster, _BINDINGS)
        except ApiNotFound:
            return None
        refusing = {binding.spec.policy_name for binding in bindings if binding.spec.refuses_everywhere}
        return {policy.metadata.name: policy.metadata.name in refusing for policy in there}
    return None


async def _away_since(cluster: Cluster, pods: Sequence[objects.PodObject], unread: dict[str, str]) -> dict[str, str]:
    """Return for each node since when its device plugin's pod is not ready."""
    key, value = PLUGIN_LABEL
    namespaces = {pod.metadata.namespace for pod in pods if (pod.metadata.labels or {}).get(key) == value}
    since: dict[str, str] = {}
    for namespace in sorted(namespaces):
        kind = Kind("pods of the device plugin", PodReadiness, f"/api/v1/namespaces/{namespace}/pods")
        for pod in await _read(cluster, kind, unread):
            ready = next((one for one in pod.status.conditions if one.type == "Ready"), None)
            is_plugin = (pod.metadata.labels or {}).get(key) == value
            if is_plugin and pod.spec.node_name and ready is not None and ready.status != "True":
                since[pod.spec.node_name] = ready.last_transition_time or "an unknown time"
    return since


def _age_s(lease: Lease | None, now: datetime) -> float | None:
    return None if lease is None else _since_s(lease.spec.renew_time or "", now)


def _waiting_s(pods: Sequence[objects.PodObject], now: datetime) -> dict[str, float]:
    """Return the age of each pod without a node by uid, if it is known."""
    ages = {pod.metadata.uid: _since_s(pod.metadata.creation_timestamp, now) for pod in pods if not pod.spec.node_name}
    return {uid: age_s for uid, age_s in ages.items() if age_s is not None}


def _since_s(time: str, now: datetime) -> float | None:
    """Return the seconds since an RFC 3339 time; None if it cannot be read."""
    try:
        return (now - datetime.fromisoformat(time)).total_seconds()
    except (ValueError, TypeError, OverflowError):
        return None
