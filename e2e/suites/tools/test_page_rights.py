"""The web page on a real API server: who may look, with whose eyes, and which of two replicas answers.

It is asked with the rights of the scheduler's account, and by an account that may be let look.
"""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final

import aiohttp
import pytest
import yaml

from e2e.control_plane.admin import Admin, Json, done
from e2e.control_plane.cluster import ControlPlane
from e2e.control_plane.processes import free_ports
from e2e.programs import manifests
from e2e.programs.scheduler_process import NO_PREDECESSOR, SchedulerProcess
from e2e.support.gpu_site import gpu_site
from tests.support.repository import ROOT
from tests.support.servers.byte_server import made_certificate

VIEWER = "page-viewer"
RBAC = [
    *manifests.documents("rbac.yaml"),
    *yaml.safe_load_all((ROOT / "deploy" / "optional" / "page.yaml").read_text(encoding="utf-8")),
]
SUBJECTS = [{"kind": "ServiceAccount", "name": VIEWER, "namespace": manifests.NAMESPACE}]
KIND: Json = {"apiVersion": "rbac.authorization.k8s.io/v1"}
ACCOUNT: Json = {
    "apiVersion": "v1",
    "kind": "ServiceAccount",
    "metadata": {"name": VIEWER, "namespace": manifests.NAMESPACE},
}
MAY_LOOK: Json = KIND | {
    "kind": "ClusterRoleBinding",
    "metadata": {"name": VIEWER},
    "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "gpushare-page-viewer"},
    "subjects": SUBJECTS,
}


OWN = "page-viewer-pods"


def may_list(namespace: str) -> list[Json]:
    head = {"name": OWN, "namespace": namespace}
    rule = {"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]}
    of = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": OWN}
    return [
        KIND | {"kind": "Role", "metadata": head, "rules": [rule]},
        KIND | {"kind": "RoleBinding", "metadata": head, "roleRef": of, "subjects": SUBJECTS},
    ]


@pytest.fixture
async def kubeconfig(control_plane: ControlPlane, admin: Admin) -> AsyncIterator[Path]:
    """Of the scheduler's account, with the rights for the page. ACCOUNT is there, and may not look yet."""
    await manifests.apply(admin, *RBAC, ACCOUNT)
    yield control_plane.kubeconfig_for(await manifests.token(admin), "service-account")
    await manifests.remove(admin, *RBAC, ACCOUNT, MAY_LOOK)


class Viewer:
    """Asks the page with a token."""

    def __init__(self, session: aiohttp.ClientSession, port: int, token: str) -> None:
        self.session, self.url = session, f"http://127.0.0.1:{port}"
        self.headers = {"Authorization": f"Bearer {token}"}

    async def pods(self) -> tuple[int, list[Any], list[str]]:
        """(status, pods on the first row, pods that wait by name); nothing of a refusal."""
        async with self.session.get(f"{self.url}/api/stream", headers=self.headers) as answer:
            on: list[Any] = []
            if answer.status != HTTPStatus.OK:
                return answer.status, [], []
            async for line in answer.content:
                message = json.loads(line)
                on = message["on"]["0"] if message["t"] == "rows" else on
                if message["t"] == "waiting":
                    return answer.status, on, [one["name"] for one in message["pods"]]
        message = "the stream has ended"
        raise AssertionError(message)

    async def until(self, status: int) -> None:
        """A refusal is remembered for some seconds, and the API server learns of a role in its own time."""
        async with asyncio.timeout(30):
            while (await self.pods())[0] != status:  # noqa: ASYNC110 - the API server tells nobody
                await asyncio.sleep(0.2)


async def test_the_api_server_decides_who_sees_the_page_and_whose_pods(
    kubeconfig: Path, admin: Admin, namespace: str, tmp_path: Path
) -> None:
    (port,) = free_ports(1)
    page = {"page": {"enabled": True, "listen": f"127.0.0.1:{port}"}}
    with SchedulerProcess(kubeconfig, tmp_path, dict(NO_PREDECESSOR) | page) as scheduler:
        await scheduler.ready()
        async with aiohttp.ClientSession() as session, gpu_site(admin, namespace, scheduler) as site:
            await site.nodes(a=[16])
            await site.pod("mine", 3)
            await site.pod("too-large", 17)
            await site.bound("mine")
            await site.unschedulable("too-large")
            assert (await Viewer(session, port, "nobody's").pods())[0] == HTTPStatus.UNAUTHORIZED
            viewer = Viewer(session, port, await manifests.token(admin, VIEWER))
            assert (await viewer.pods())[0] == HTTPStatus.FORBIDDEN
            await manifests.apply(admin, MAY_LOOK)
            await viewer.until(HTTPStatus.OK)
            assert await viewer.pods() == (HTTPStatus.OK, [["", None, [0, 3], 0]], [])
            operator = Viewer(session, port, await manifests.token(admin, manifests.SCHEDULER))
            assert (await operator.pods())[0] == HTTPStatus.FORBIDDEN  # its account lists pods, and may not look
            for document in may_list(namespace):
                done(await admin.post(manifests.collection(document), document))
            async with asyncio.timeout(90):
                while (found := await viewer.pods())[2] != ["too-large"]:  # noqa: ASYNC110 - as above
                    await asyncio.sleep(0.5)
            assert found == (HTTPStatus.OK, [[namespace, "mine", [0, 3], 0]], ["too-large"])
    assert [line for line in scheduler.lines() if line["level"] in {"warning", "error"}] == []


# As in test_two_replicas.
QUICK: Final[dict[str, Any]] = {
    "bindTimeout": "1s",
    "leaderElection": {"leaseDuration": "6s", "renewDeadline": "4s", "retryPeriod": "1500ms"},
}
TAKEN_OVER_S: Final = 20.0
LEASE: Final = f"/apis/coordination.k8s.io/v1/namespaces/{manifests.NAMESPACE}/leases/gpushare-scheduler"
ADDRESS: Final = "127.0.0.1"


class Replica:
    """A process with a page by TLS; its pod's address is loopback, so that no other machine reaches it."""

    def __init__(self, kubeconfig: Path, folder: Path, certificate: tuple[Path, Path]) -> None:
        (port,) = free_ports(1)
        cert, key = map(str, certificate)
        page = {"enabled": True, "listen": f"{ADDRESS}:{port}", "certFile": cert, "keyFile": key}
        folder.mkdir()
        self.process = SchedulerProcess(kubeconfig, folder, QUICK | {"page": page})
        self.process.also_inherits["POD_IP"] = ADDRESS
        self.url = f"https://{ADDRESS}:{port}"


class ViewerOfReplicas:
    """Asks any replica, with a token."""

    def __init__(self, session: aiohttp.ClientSession, token: str) -> None:
        self.session, self.headers = session, {"Authorization": f"Bearer {token}"}

    def stream(self, at: Replica) -> Any:  # noqa: ANN401 - a context manager of aiohttp
        return self.session.get(f"{at.url}/api/stream", headers=self.headers, ssl=False)

    async def answer(self, at: Replica) -> tuple[str, bool]:
        """(the process that answers, whether it leads)."""
        async with self.stream(at) as found:
            assert found.status == HTTPStatus.OK, await found.text()
            return await head(found)

    async def until(self, at: Replica, *, leads: bool) -> str:
        """Ask until the answer is of one that leads, or of one that does not; the process."""
        async with asyncio.timeout(TAKEN_OVER_S):
            while True:
                instance, found = await self.answer(at)
                if found is leads:
                    return instance
                await asyncio.sleep(0.1)


async def head(answer: aiohttp.ClientResponse) -> tuple[str, bool]:
    instance = ""
    async for line in answer.content:
        message = json.loads(line)
        instance = message.get("instance", instance)
        if message["t"] == "now":
            return instance, message["leads"]
    message = "the stream has ended"
    raise AssertionError(message)


async def shown_in_lease(admin: Admin) -> str | None:
    """The page that the Lease names."""
    metadata = done(await admin.get(LEASE)).body["metadata"]
    found: str | None = metadata.get("annotations", {}).get("gpushare/page-url")
    return found


async def test_every_replica_shows_what_the_leader_has(kubeconfig: Path, admin: Admin, tmp_path: Path) -> None:
    ours, others = made_certificate(tmp_path, "ours"), made_certificate(tmp_path, "others")
    first, second = (Replica(kubeconfig, tmp_path / name, ours) for name in ("one", "two"))
    stranger = Replica(kubeconfig, tmp_path / "three", others)
    await manifests.apply(admin, MAY_LOOK)
    token = await manifests.token(admin, VIEWER)
    async with AsyncExitStack() as stack:
        viewer = ViewerOfReplicas(await stack.enter_async_context(aiohttp.ClientSession(read_bufsize=2**20)), token)
        stack.enter_context(first.process)
        await first.process.said("leader.schedules", within_s=30.0)
        for one in (second, stranger):
            stack.enter_context(one.process)
            await one.process.said("leader.standby")
            await one.process.ready()
        leading = await viewer.until(first, leads=True)
        assert await shown_in_lease(admin) == first.url
        assert await viewer.answer(second) == (leading, True)
        # One that shows another certificate is told nothing, and tells nothing.
        own, leads = await viewer.answer(stranger)
        assert (own != leading, leads) == (True, False)
        await stranger.process.said("page.leader_not_reached")
        await asyncio.to_thread(stranger.process.stop)

        async with viewer.stream(second) as following:
            assert await head(following) == (leading, True)
            await asyncio.to_thread(first.process.kill)
            gone_s = time.monotonic()
            with pytest.raises(aiohttp.ClientError):
                await following.content.read()
        standing, leads = await viewer.answer(second)
        answered_s = time.monotonic() - gone_s
        assert (standing != leading, leads) == (True, False)
        assert await viewer.until(second, leads=True) == standing
        taken_s = time.monotonic() - gone_s
        print(f"own tables {answered_s:.2f} s, next leader {taken_s:.2f} s after a kill")  # noqa: T201 - the figures

        first.process.start()
        await first.process.ready()
        assert await viewer.until(first, leads=True) == standing
        assert await shown_in_lease(admin) == second.url
        await asyncio.to_thread(second.process.stop)
        assert await viewer.until(first, leads=True) not in {leading, standing}
        # Who has not begun to schedule does not give the Lease up.
        identity = first.process.lines("leader.elected")[-1]["identity"]
        await first.process.said("leader.schedules", within_s=30.0, identity=identity)
        await asyncio.to_thread(first.process.stop)
        assert await shown_in_lease(admin) is None
    for one in (first, second, stranger):
        assert token not in one.process.log.read_text()
        assert [line for line in one.process.lines() if line["level"] == "error"] == []
