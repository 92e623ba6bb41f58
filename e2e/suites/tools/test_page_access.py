"""The web page of a scheduler at work: a real API server says who may see it, and whose pods by name."""

import asyncio
import json
from collections.abc import AsyncIterator
from http import HTTPStatus
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from e2e.control_plane.admin import Admin, Json, done
from e2e.control_plane.cluster import ControlPlane
from e2e.control_plane.processes import free_ports
from e2e.programs import manifests
from e2e.programs.scheduler_process import NO_PREDECESSOR, SchedulerProcess
from e2e.support.gpu_site import gpu_site
from e2e.support.page_rights import KIND, MAY_LOOK, SUBJECTS, VIEWER, rights_for_the_page

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
    async with rights_for_the_page(control_plane, admin) as path:
        yield path


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
