"""Both programs under the tokens of their accounts, on a node whose API server writes down what each of them asks.

    scheduler ──▶ Proxy ──▶ API server ──▶ audit log
    device plugin, on the node ──▲

The proxy brings about what only a rare fault makes a program ask.
"""

import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from e2e.control_plane.admin import Admin, Json, seen
from e2e.fire.proxy import Answer, Mishap, Passing, proxy, status_body
from e2e.fire.site import CONFIGURATION
from e2e.node.local_node import LocalNode
from e2e.programs import manifests
from e2e.programs.plugin_process import DevicePluginProcess, token
from e2e.programs.scheduler_process import SchedulerProcess
from e2e.suites.rights import audit
from e2e.suites.rights.audit import Request
from e2e.support import policy_site
from e2e.support.shared_node import GIB

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
