"""Every right of the manifests is used, and none is missing: by the audit log of an API server.

Both programs do all that they do, beside a real kubelet, under the tokens of their accounts. The server gives lists in
pages, as those before Kubernetes 1.34 do: of one that streams them both ask for `watch` alone.

    scheduler ──▶ Proxy ──▶ API server ──▶ audit log
    device plugin, on the node ──▲

The proxy brings about what only a rare fault makes a program ask.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import pytest

from config.protocol import names
from e2e.control_plane.admin import Admin, Json, done, seen
from e2e.control_plane.cluster import ControlPlane
from e2e.fire.proxy import Answer, Mishap, Passing, proxy, status_body
from e2e.fire.site import CONFIGURATION
from e2e.node.local_node import LocalNode
from e2e.node.node_pods import PODS, runs
from e2e.programs import manifests
from e2e.programs.doctor_program import doctor
from e2e.programs.plugin_process import DevicePluginProcess, token
from e2e.programs.scheduler_process import SchedulerProcess
from e2e.suites.rights import audit
from e2e.suites.rights.audit import NotNarrow, Request, Right
from e2e.support import policy_site
from e2e.support.claims_site import CLASSES, FAST, LOCAL, VOLUMES, selected_node
from e2e.support.gpu_site import is_bound
from e2e.support.pod_groups import PLUGINS, VOLCANO, define
from e2e.support.shared_node import GIB, shared_pod, sharing
from scheduler.kube.events import QUIET_S
from tests.support.volumes import claim, volume, with_claims

ACCOUNTS: Final = (audit.user(manifests.SCHEDULER), audit.user(manifests.PLUGIN))
CARD_UNITS: Final = 16
IN_DOUBT: Final = "in-doubt"
_EVENTS: Final = "/apis/events.k8s.io/v1/namespaces/default/events"
_SOON_S: Final = 20.0


@dataclass(slots=True)
class AuditedSite:
    """failing: the binding of the pod `IN_DOUBT` is answered 500 while this is True; then it is executed twice."""

    node: LocalNode
    admin: Admin
    scheduler: SchedulerProcess
    plugin: DevicePluginProcess
    failing: bool = True
    _made: list[str] = field(default_factory=list)

    async def create(self, path: str, manifest: Json) -> Json:
        """Make an object; it is gone after the test."""
        created = await self.admin.create(path, manifest)
        self._made.append(f"{path}/{manifest['metadata']['name']}")
        return created

    async def seen(self, path: str, name: str, wanted: Callable[[Json], Any]) -> Json:
        """Wait for an object to be as wanted. Raises NotSeen."""
        query = {"fieldSelector": f"metadata.name={name}"}
        return await seen(self.admin, path, lambda found: bool(wanted(found)), query, within_s=_SOON_S)

    async def event(self, about: str, wanted: Callable[[Json], bool], *, within_s: float = _SOON_S) -> Json:
        """Wait for such an Event about a pod or a node. Raises NotSeen."""

        def fits(found: Json) -> bool:
            return found["regarding"]["name"] == about and wanted(found)

        return await seen(self.admin, _EVENTS, fits, {}, within_s=within_s)

    def answered(self) -> list[Request]:
        """What the audit log has so far."""
        return audit.requests(self.node.cluster.audit_log)

    async def clear(self) -> None:
        """Remove what was made."""
        for path in reversed(self._made):
            await self.admin.delete(path, {"gracePeriodSeconds": 0})

    def choose(self, passing: Passing) -> Mishap | None:
        """As `proxy.Choose`."""
        if not passing.is_binding or f"/{IN_DOUBT}/" not in passing.path:
            return None
        return _not_executed if self.failing else _twice


async def _not_executed(_: Passing) -> Answer:
    body = status_body(500, "InternalError", "etcdserver: request timed out")
    return Answer(500, {"Content-Type": "application/json"}, json.dumps(body).encode())


async def _twice(passing: Passing) -> Answer:
    await passing.sent()
    return await passing.sent()


@asynccontextmanager
async def audited_site(
    node: LocalNode,
    roles: Sequence[Json],
    folder: Path,
    **plugin: Any,  # noqa: ANN401 - as DevicePluginProcess
) -> AsyncIterator[AuditedSite]:
    """roles: all that the accounts have, with the accounts and the bindings. plugin: more of its configuration."""
    async with Admin(node.cluster.access()) as admin, proxy(node.cluster) as between:
        await manifests.apply(admin, *roles)
        await policy_site.apply(admin, policy_site.policies())
        for api_group in (PLUGINS, VOLCANO):
            await define(admin, api_group)
        direct = node.cluster.kubeconfig_for(await manifests.token(admin), "scheduler")
        scheduler = SchedulerProcess(between.kubeconfig(direct), folder, CONFIGURATION)
        settings = {"readingInterval": "1s", "reconcileInterval": "30s"} | plugin
        bound_token = await token(admin, node.name)
        with scheduler, DevicePluginProcess(node, bound_token, [CARD_UNITS * GIB], **settings) as started:
            site = AuditedSite(node, admin, scheduler, started)
            between.choose = site.choose
            try:
                await scheduler.ready()
                await started.ready()
                yield site
            finally:
                await site.clear()
        await manifests.remove(admin, *roles)
        await admin.delete(f"/api/v1/namespaces/{manifests.NAMESPACE}/pods/device-plugin-{node.name}")


INSTALLED: Final = manifests.documents("rbac.yaml", "device-plugin-rbac.yaml")
MARK_ASSIGNED: Final = policy_site.optional("device-plugin-mark-assigned.yaml")
EVICT: Final = policy_site.optional("device-plugin-evict.yaml")
# Which every account has, by roles of the API server's own.
OF_EVERYBODY: Final = {("create", "selfsubjectaccessreviews"), ("get", "/version")}
CLAIMS: Final = "/api/v1/namespaces/default/persistentvolumeclaims"
PRIORITY_CLASSES: Final = "/apis/scheduling.k8s.io/v1/priorityclasses"
# An Event that is repeated becomes a series when it has been quiet for so long: too long for the run by day.
SERIES_WITHIN_S: Final = QUIET_S + 120.0
# Two comparisons of the node's pods are half a minute apart.
EVICTED_WITHIN_S: Final = 120.0
FATAL: Final = 119
LOGGED_WITHIN_S: Final = 10.0


@pytest.fixture(scope="module")
def node(node_ready: None) -> Iterator[LocalNode]:
    del node_ready
    with ControlPlane(audited=ACCOUNTS, streamed_lists=False, pod_groups=True) as own, LocalNode(own, "n8") as started:
        yield started


async def makes_room(site: AuditedSite) -> None:
    """A pod goes for one of higher priority: binding, status, deletion, Events; on the node, marks."""
    # First, as the API server takes it into use a little after it has been made.
    await site.create(PRIORITY_CLASSES, {"metadata": {"name": "urgent"}, "value": 1000})
    await site.create(PODS, shared_pod("low", [sharing(CARD_UNITS)]))
    await runs(site.admin, "low")
    await site.create(PODS, shared_pod("urgent", [sharing(CARD_UNITS - 1)], priorityClassName="urgent"))
    await runs(site.admin, "urgent")
    await site.event("low", lambda found: bool(found["reason"] == "Preempted"))


async def takes_volumes(site: AuditedSite) -> None:
    """A volume is given to a claim, a node is written into another. No controller binds the claims."""
    for one in (LOCAL, FAST):
        await site.create(CLASSES, one)
    disk = volume("disk", class_name="local", on=(site.node.name,), local={"path": "/disks/disk"})
    await site.create(VOLUMES, disk)
    done(await site.admin.patch(f"{VOLUMES}/disk/status", {"status": {"phase": "Available"}}))
    for name in ("local", "fast"):
        await site.create(CLAIMS, claim(name, class_name=name))
        await site.create(PODS, shared_pod(f"with-{name}", [sharing(0)], **with_claims(name)))
    await site.seen(VOLUMES, "disk", lambda found: found["spec"].get("claimRef"))
    await site.seen(CLAIMS, "fast", selected_node)


async def is_in_doubt(site: AuditedSite, *, for_long: bool) -> None:
    """A binding has no definite answer, for long enough to make a series of Events, and is a conflict in the end."""
    await site.create(PODS, shared_pod(IN_DOUBT, [sharing(0)]))
    await site.event(IN_DOUBT, lambda found: "no definite answer yet" in found["note"])
    if for_long:
        await site.event(IN_DOUBT, lambda found: "series" in found, within_s=SERIES_WITHIN_S)
    site.failing = False
    await site.seen(PODS, IN_DOUBT, is_bound)


async def tells_of_a_card(site: AuditedSite) -> None:
    """The node's cards are announced, one fails, and `doctor` is asked."""
    await site.plugin.happens(card=0, xid=FATAL)
    await site.event(site.node.name, lambda found: bool(found["reason"] == "GPUUnhealthy"))
    await doctor(site.plugin)


async def evicts(site: AuditedSite) -> None:
    """A pod that came past the scheduler."""
    by_hand = shared_pod("by-hand", [sharing(1)], nodeName=site.node.name)
    by_hand["spec"]["schedulerName"] = "default-scheduler"
    await site.create(PODS, by_hand)
    await site.event("by-hand", lambda found: bool(found["reason"] == "GPUUnscheduled"), within_s=EVICTED_WITHIN_S)


def is_of_series(right: Right) -> bool:
    """Whether the scheduler uses it for nothing but a series of Events."""
    return (right.user, right.verb, right.resource) == (ACCOUNTS[0], "patch", "events")


async def all_used(site: AuditedSite, rights: set[Right]) -> list[str]:
    """Wait until no right is unused; those that are in the end."""
    try:
        async with asyncio.timeout(LOGGED_WITHIN_S):
            while audit.unused(rights, site.answered()):  # noqa: ASYNC110 - a file
                await asyncio.sleep(0.2)
    except TimeoutError:
        pass
    return audit.unused(rights, site.answered())


@pytest.mark.parametrize(
    "optional",
    [
        pytest.param(MARK_ASSIGNED, id="with marks"),
        pytest.param([*MARK_ASSIGNED, *EVICT], id="with evictions", marks=pytest.mark.nightly),
    ],
)
async def test_every_right_is_used_and_none_is_missing(
    node: LocalNode, optional: Sequence[Json], tmp_path: Path
) -> None:
    roles = [*INSTALLED, *optional]
    rights, long = audit.granted(roles), optional is not MARK_ASSIGNED
    async with audited_site(node, roles, tmp_path, markAssigned=True, evictUnscheduled=long) as site:
        await makes_room(site)
        await takes_volumes(site)
        await is_in_doubt(site, for_long=long)
        if long:
            await evicts(site)
        await tells_of_a_card(site)
        left = await all_used(site, {right for right in rights if long or not is_of_series(right)})
        answered = site.answered()

    print(f"{len(rights)} rights, {len(answered)} requests")  # noqa: T201 - the figures
    assert left == []
    assert audit.refused(answered) == []
    assert audit.beyond(rights, answered) == OF_EVERYBODY


ROLE: Final = 'ClusterRole "r"'
BIND: Final = Right("u", ROLE, "create", "", "pods/binding", "", "")
BOUND: Final = Request(
    "u",
    "create",
    "",
    "pods/binding",
    "ns",
    "p",
    "/",
    201,
    "",
    f'RBAC: allowed by ClusterRoleBinding "r" of {ROLE} to User',
)


@pytest.mark.parametrize(
    ("right", "answered"),
    [
        pytest.param(BIND, replace(BOUND, status=409), id="it was not done"),
        pytest.param(BIND, replace(BOUND, user="v"), id="by another one"),
        pytest.param(BIND, replace(BOUND, verb="patch"), id="another verb"),
        pytest.param(BIND, replace(BOUND, resource="pods"), id="another resource"),
        pytest.param(BIND, replace(BOUND, group="apps"), id="another group"),
        pytest.param(BIND, replace(BOUND, reason=BOUND.reason.replace(ROLE, 'Role "r"')), id="by another role"),
        pytest.param(replace(BIND, namespace="other"), BOUND, id="in another namespace"),
        pytest.param(replace(BIND, name="q"), BOUND, id="of another object"),
    ],
)
def test_a_right_that_nobody_uses_is_named(right: Right, answered: Request) -> None:
    assert audit.unused({BIND}, [BOUND]) == []
    assert audit.unused({right}, [answered]) == [str(right)]


def test_a_request_that_is_refused_is_named() -> None:
    assert audit.refused([BOUND, replace(BOUND, status=403, message="no")]) == ["u: create /: 403 no"]


@pytest.mark.parametrize("part", ["apiGroups", "resources", "verbs"])
def test_a_right_to_everything_is_none_that_can_be_used(part: str) -> None:
    (role,) = (one for one in INSTALLED if one["kind"] == "ClusterRole" and one["metadata"]["name"] == manifests.PLUGIN)
    wide = {**role, "rules": [{**role["rules"][0], part: ["*"]}]}
    with pytest.raises(NotNarrow):
        audit.granted([wide, *(one for one in INSTALLED if one["kind"] == "ClusterRoleBinding")])


def test_the_rights_are_those_of_the_files() -> None:
    rights = audit.granted(INSTALLED)
    scheduler, plugin = ACCOUNTS
    lease = Right(
        scheduler,
        f'Role "{names.SCHEDULER_NAME}"',
        "patch",
        "coordination.k8s.io",
        "leases",
        "kube-system",
        "gpushare-scheduler",
    )
    assert lease in rights
    assert Right(plugin, f'ClusterRole "{manifests.PLUGIN}"', "patch", "", "nodes/status", "", "") in rights
