"""A validating webhook that fails every binding of one namespace, on a real API server: its neighbours lose nothing."""

import asyncio
import base64
import ssl
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Final, TypeAlias

import pytest
from aiohttp import web

from e2e.control_plane import provider
from e2e.control_plane.admin import Admin, Json, done
from e2e.control_plane.cluster import ControlPlane
from e2e.control_plane.processes import free_ports
from e2e.programs.scheduler_process import SchedulerProcess
from e2e.support.gpu_site import GpuSite, condition, gpu_pod, is_bound
from tests.support.clocks.quickest import quickest

_WEBHOOKS: Final = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
_NAME: Final = "of-a-tenant"
_REASON: Final = "failed calling webhook"
_ASKED_WITHIN_S: Final = 2
# More than all slots of bindings.
VICTIMS, NEIGHBOURS = 80, 40
_NEIGHBOUR_EVERY_S: Final = 0.05
_NEIGHBOUR_WITHIN_S: Final = 2.0
_TOLD_WITHIN_S: Final = 30.0
_FREED_WITHIN_S: Final = 90.0
_LOOK_EVERY_S: Final = 0.1

Webhook: TypeAlias = Callable[[ControlPlane], AbstractAsyncContextManager[int]]


@asynccontextmanager
async def away(_: ControlPlane) -> AsyncIterator[int]:
    """A port that nobody listens at."""
    (port,) = free_ports(1)
    yield port


@asynccontextmanager
async def broken(cluster: ControlPlane) -> AsyncIterator[int]:
    """The port of a server that has failed, and says so over TLS."""

    async def fail(_: web.Request) -> web.Response:
        return web.Response(status=500, text="the database of this webhook is away")

    async with _serving(cluster, fail) as port:
        yield port


@asynccontextmanager
async def hanging(cluster: ControlPlane) -> AsyncIterator[int]:
    """The port of a server that takes requests and answers none in time."""

    async def hang(_: web.Request) -> web.Response:
        await asyncio.sleep(_ASKED_WITHIN_S + 1)
        return web.Response(status=500)

    async with _serving(cluster, hang) as port:
        yield port


@pytest.fixture
def scheduler(cluster: provider.Target, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SchedulerProcess]:
    with SchedulerProcess(cluster.kubeconfig_path(), tmp_path_factory.mktemp("scheduler")) as started:
        yield started


@pytest.fixture
async def victims(admin: Admin) -> AsyncIterator[str]:
    """A namespace beside `namespace`."""
    name = "e2e-victims"
    await admin.create("/api/v1/namespaces", {"metadata": {"name": name}})
    yield name
    await admin.delete(f"/api/v1/namespaces/{name}/pods", {"gracePeriodSeconds": 0})
    await admin.delete(f"/api/v1/namespaces/{name}")
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}, "spec": {"finalizers": []}}
    await admin.put(f"/api/v1/namespaces/{name}/finalize", body)


@pytest.mark.parametrize("webhook", [away, broken, hanging])
async def test_a_webhook_that_fails_one_namespace_delays_no_other_and_says_why(
    webhook: Webhook, site: GpuSite, victims: str, control_plane: ControlPlane
) -> None:
    pods = f"/api/v1/namespaces/{victims}/pods"
    # A node takes 110 pods.
    await site.nodes(a=[1000], b=[1000])
    async with webhook(control_plane) as port:
        await site.admin.create(_WEBHOOKS, asks_at(port, control_plane, victims))
        try:
            await _until(lambda: _refused(site.admin, pods), _TOLD_WITHIN_S)
            slowest_s = await quickest(lambda turn: _slowest_neighbour(site, pods, turn), _NEIGHBOUR_WITHIN_S)
            told = await _all_told(site.admin, pods)
            there = await site.admin.items(pods)
        finally:
            done(await site.admin.delete(f"{_WEBHOOKS}/{_NAME}"))
    assert not any(map(is_bound, there))
    freed_s = time.monotonic()
    await _until(lambda: _all_bound(site.admin, pods), _FREED_WITHIN_S)
    sys.stdout.write(
        f"{webhook.__name__}: neighbours bound after {slowest_s * 1e3:.0f} ms at most; "
        f"victims told after {told:.1f} s, bound {time.monotonic() - freed_s:.1f} s after the webhook had gone\n"
    )
    assert slowest_s < _NEIGHBOUR_WITHIN_S


def asks_at(port: int, cluster: ControlPlane, namespace: str) -> Json:
    """Nothing is bound in the namespace unless a server at this port allows it."""
    authority = base64.b64encode(cluster.ca_file.read_bytes()).decode("ascii")
    bindings = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods/binding"]}
    webhook = {
        "name": "bindings.tenant.example.com",
        "clientConfig": {"url": f"https://127.0.0.1:{port}/", "caBundle": authority},
        "rules": [bindings],
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
        "failurePolicy": "Fail",
        "sideEffects": "None",
        "timeoutSeconds": _ASKED_WITHIN_S,
        "admissionReviewVersions": ["v1"],
    }
    return {"metadata": {"name": _NAME}, "webhooks": [webhook]}


async def _refused(admin: Admin, pods: str) -> bool:
    """Whether the webhook is in force: the API server takes it into use a little after it was written."""
    name = "probe"
    await admin.create(pods, gpu_pod(name, 1, schedulerName="nobody"))
    binding = {"metadata": {"name": name}, "target": {"kind": "Node", "name": "a"}}
    answer = await admin.post(f"{pods}/{name}/binding", binding)
    await admin.delete(f"{pods}/{name}", {"gracePeriodSeconds": 0})
    return _REASON in answer.body.get("message", "")


async def _slowest_neighbour(site: GpuSite, victims: str, turn: int) -> float:
    """Seconds until a pod of the other namespace is bound, at most, while there are new pods at `victims`."""
    done(await site.admin.delete(victims, {"gracePeriodSeconds": 0}))
    await site.admin.create_all(victims, (gpu_pod(f"v-{turn}-{number}", 1) for number in range(VICTIMS)))
    return max([await _neighbour(site, f"n-{turn}-{number}") for number in range(NEIGHBOURS)])


async def _neighbour(site: GpuSite, name: str) -> float:
    """Seconds until a pod of the other namespace is bound."""
    await asyncio.sleep(_NEIGHBOUR_EVERY_S)
    created_s = time.monotonic()
    await site.pod(name, 1)
    await site.bound(name)
    return time.monotonic() - created_s


async def _all_told(admin: Admin, pods: str) -> float:
    """Wait until every victim says why it is not bound, by its condition or an Event; the seconds from now."""
    began_s = time.monotonic()
    events = pods.replace("/api/v1/", "/apis/events.k8s.io/v1/").replace("/pods", "/events")

    async def told() -> bool:
        said = {one["regarding"]["name"] for one in await admin.items(events) if _REASON in one["note"]}
        return all(
            pod["metadata"]["name"] in said or _REASON in condition(pod).get("message", "")
            for pod in await admin.items(pods)
        )

    await _until(told, _TOLD_WITHIN_S)
    return time.monotonic() - began_s


async def _all_bound(admin: Admin, pods: str) -> bool:
    return all(map(is_bound, await admin.items(pods)))


async def _until(holds: Callable[[], Awaitable[bool]], within_s: float) -> None:
    async with asyncio.timeout(within_s):
        while not await holds():  # noqa: ASYNC110 - nothing tells
            await asyncio.sleep(_LOOK_EVERY_S)


@asynccontextmanager
async def _serving(
    cluster: ControlPlane, answer: Callable[[web.Request], Awaitable[web.Response]]
) -> AsyncIterator[int]:
    (port,) = free_ports(1)
    application = web.Application()
    application.router.add_post("/", answer)
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    issued = cluster.server_certificate
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(issued.certificate, issued.key)
    await web.TCPSite(runner, "127.0.0.1", port, ssl_context=tls).start()
    try:
        yield port
    finally:
        await runner.cleanup()
