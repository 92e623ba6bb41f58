"""The version of the server is read beside the start, and said; a program that cannot read it works as well."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from scheduler.kube import port, versions
from scheduler.kube.rest import version
from scheduler.kube.rest.client import ClientOptions, KubeCluster
from scheduler.kube.versions import ServerVersion, VersionNotice
from tests.scheduler.kube.rest.conftest import ClusterOf
from tests.support.clocks.virtual_time import in_virtual_time, now_s
from tests.support.servers.api_server import ApiServer, ok, status

INFO = {"major": "1", "minor": "36", "gitVersion": "v1.36.3", "platform": "linux/amd64"}


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        pytest.param(INFO, ServerVersion("v1.36.3"), id="as before 1.33"),
        pytest.param(
            INFO | {"emulationMajor": "1", "emulationMinor": "36"}, ServerVersion("v1.36.3"), id="behaves as it is"
        ),
        pytest.param(
            INFO | {"emulationMajor": "1", "emulationMinor": "35"},
            ServerVersion("v1.36.3", "v1.35"),
            id="behaves as an older one",
        ),
        pytest.param(
            {"gitVersion": "v1.36.3\x1b[31m" + "x" * 100_000},
            ServerVersion("v1.36.3 [31m" + "x" * 51 + "…"),
            id="with what a terminal obeys",
        ),
    ],
)
async def test_it_is_read_of_the_server(
    api: ApiServer, cluster: KubeCluster, document: dict[str, str], expected: ServerVersion
) -> None:
    api.script = [ok(document)]

    assert await cluster.server_version() == expected
    assert [(seen.method, seen.path) for seen in api.seen] == [("GET", "/version")]


@pytest.mark.parametrize("document", [{}, {"gitVersion": 1}, [INFO]])
async def test_what_is_no_version_is_no_answer(api: ApiServer, cluster: KubeCluster, document: object) -> None:
    api.script = [ok(document)]  # type: ignore[arg-type]  # that is what is tried

    with pytest.raises(port.ApiSilent, match="not the API server's answer"):
        await cluster.server_version()


async def test_a_server_that_does_not_answer_is_given_up(api: ApiServer, cluster_of: ClusterOf) -> None:
    async def never(_: object) -> None:
        await asyncio.Event().wait()

    api.script = [never]  # type: ignore[list-item]  # it answers nothing
    cluster = await cluster_of(options=ClientOptions(request_timeout_s=0.05))

    with pytest.raises(port.ApiSilent, match=r"no answer within 0\.05 s"):
        await cluster.server_version()


async def test_a_right_that_is_missing_is_said_and_not_asked_for_again(api: ApiServer, cluster: KubeCluster) -> None:
    api.script = [status(403, "nonresourceURL /version is forbidden")]
    said: list[VersionNotice] = []

    await version.tell(cluster.server_version, versions.OF_THE_SCHEDULER, said.append)

    assert said == [versions.unknown("kube-apiserver", "nonresourceURL /version is forbidden")]
    assert len(api.seen) == 1


def answers(*each: ServerVersion | port.ApiError) -> Callable[[], Awaitable[ServerVersion]]:
    script = list(each)

    async def ask() -> ServerVersion:
        answer = script.pop(0)
        if isinstance(answer, port.ApiError):
            raise answer
        return answer

    return ask


@in_virtual_time
async def test_a_server_that_is_away_at_first_is_complained_about_by_the_watches_alone() -> None:
    said: list[VersionNotice] = []
    ask = answers(port.ApiForbidden("Unauthorized", 401), ServerVersion("v1.36.3"))

    await version.tell(ask, versions.OF_THE_SCHEDULER, said.append)

    assert [line.event for line in said] == ["kubernetes.version"]
    assert now_s() == pytest.approx(60.0)


@in_virtual_time
async def test_a_version_that_does_not_come_is_complained_about_once_and_said_when_it_comes() -> None:
    said: list[VersionNotice] = []
    ask = answers(*(port.ApiSilent("no answer within 30 s") for _ in range(4)), ServerVersion("v1.36.3"))

    await version.tell(ask, versions.OF_THE_SCHEDULER, said.append)

    assert [line.event for line in said] == ["kubernetes.version_unknown", "kubernetes.version"]
    assert now_s() == pytest.approx(240.0)
