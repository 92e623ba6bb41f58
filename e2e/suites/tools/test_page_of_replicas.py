"""The web page of two replicas on a real API server: both show what the leader has, whoever that is."""

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

from e2e.control_plane.admin import Admin, done
from e2e.control_plane.cluster import ControlPlane
from e2e.control_plane.processes import free_ports
from e2e.programs import manifests
from e2e.programs.scheduler_process import SchedulerProcess
from e2e.support.page_rights import MAY_LOOK, VIEWER, rights_for_the_page
from tests.support.servers.byte_server import made_certificate

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


class Viewer:
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


@pytest.fixture
async def kubeconfig(control_plane: ControlPlane, admin: Admin) -> AsyncIterator[Path]:
    async with rights_for_the_page(control_plane, admin) as path:
        await manifests.apply(admin, MAY_LOOK)
        yield path


async def shown_in_lease(admin: Admin) -> str | None:
    """The page that the Lease names."""
    metadata = done(await admin.get(LEASE)).body["metadata"]
    found: str | None = metadata.get("annotations", {}).get("gpushare/page-url")
    return found


async def test_every_replica_shows_what_the_leader_has(kubeconfig: Path, admin: Admin, tmp_path: Path) -> None:
    ours, others = made_certificate(tmp_path, "ours"), made_certificate(tmp_path, "others")
    first, second = (Replica(kubeconfig, tmp_path / name, ours) for name in ("one", "two"))
    stranger = Replica(kubeconfig, tmp_path / "three", others)
    token = await manifests.token(admin, VIEWER)
    async with AsyncExitStack() as stack:
        viewer = Viewer(await stack.enter_async_context(aiohttp.ClientSession(read_bufsize=2**20)), token)
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
        # The figures.
        print(f"own tables {answered_s:.2f} s, the next leader {taken_s:.2f} s after a kill")  # noqa: T201

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
