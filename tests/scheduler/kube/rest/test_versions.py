"""Versions of servers and kubelets: how they are read and said beside the start, and what they mean to the programs."""

from collections.abc import Awaitable, Callable

import pytest

from e2e.control_plane import pinned
from scheduler.kube import port, versions
from scheduler.kube.rest import version
from scheduler.kube.rest.client import KubeCluster
from scheduler.kube.versions import Feature, Minor, ServerVersion, VersionNotice
from tests.support.clocks.virtual_time import in_virtual_time, now_s
from tests.support.servers.api_server import ApiServer, ok, status

STREAMED = Feature("WatchList", Minor(1, 34), "pages", also=frozenset({Minor(1, 32)}))
INFO = {"major": "1", "minor": "36", "gitVersion": "v1.36.3", "platform": "linux/amd64"}


def events(lines: list[VersionNotice]) -> list[str]:
    return [line.event for line in lines]


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
async def test_a_version_that_does_not_come_is_complained_about_once_and_said_when_it_comes() -> None:
    said: list[VersionNotice] = []
    ask = answers(*(port.ApiSilent("no answer within 30 s") for _ in range(4)), ServerVersion("v1.36.3"))

    await version.tell(ask, versions.OF_THE_SCHEDULER, said.append)

    assert events(said) == ["kubernetes.version_unknown", "kubernetes.version"]
    assert now_s() == pytest.approx(240.0)


# What a version means


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        pytest.param("v1.36.3", Minor(1, 36), id="of a release"),
        pytest.param("v1.31.5-gke.1023000", Minor(1, 31), id="of a cloud"),
        pytest.param("v1.37.0-rc.1+abcdef", Minor(1, 37), id="of a candidate"),
        pytest.param("v1.29+", Minor(1, 29), id="with a plus"),
        pytest.param("v2.0.0", Minor(2, 0), id="of another time"),
        pytest.param("", None, id="none"),
        pytest.param("v1", None, id="without a minor"),
        pytest.param("devel", None, id="a word"),
        pytest.param("v1." + "9" * 5000, Minor(1, 999), id="of no end"),
    ],
)
def test_the_minor_version_is_read_however_a_vendor_writes_the_rest(version: str, expected: Minor | None) -> None:
    assert versions.minor_of(version) == expected


@pytest.mark.parametrize(
    ("minor", "on"), [((1, 31), False), ((1, 32), True), ((1, 33), False), ((1, 34), True), ((2, 0), True)]
)
def test_a_feature_can_be_on_off_and_on_again(minor: tuple[int, int], *, on: bool) -> None:
    assert STREAMED.on(Minor(*minor)) is on


def test_each_feature_that_is_off_is_said_with_what_is_without_it() -> None:
    lines = versions.of_server(ServerVersion("v1.33.13"), (STREAMED, Feature("Old", Minor(1, 30), "nothing")))

    assert events(lines) == ["kubernetes.version", "kubernetes.version_not_run", "kubernetes.feature_off"]
    assert lines[-1] == VersionNotice(
        "warning",
        "kubernetes.feature_off",
        {
            "program": "kube-apiserver",
            "version": "v1.33.13",
            "feature": "WatchList",
            "since": "1.34",
            "without": "pages",
        },
    )


def test_nothing_is_off_where_it_was_run() -> None:
    for minor in (versions.OLDEST_RUN, versions.NEWEST_RUN):
        assert events(versions.of_server(ServerVersion(f"v{minor}.1"), versions.OF_THE_SCHEDULER)) == [
            "kubernetes.version"
        ]
        assert events(versions.of_kubelet(f"v{minor}.1")) == ["kubernetes.version"]


def test_a_version_that_was_not_run_is_a_warning_and_no_more() -> None:
    older, newer = (versions.of_server(ServerVersion(version), ()) for version in ("v1.28.1", "v1.99.0"))

    assert older[1].fields["hint"].startswith(f"older than the tested versions, {versions.OLDEST_RUN} to")
    assert newer[1].fields["hint"].startswith("newer than")


def test_a_server_that_behaves_as_an_older_one_has_the_features_of_that() -> None:
    lines = versions.of_server(ServerVersion("v1.36.3", emulated="v1.33"), (STREAMED,))

    assert events(lines)[-1] == "kubernetes.feature_off"
    assert lines[0].fields == {"program": "kube-apiserver", "version": "v1.36.3", "emulated": "v1.33"}


def test_a_kubelet_that_does_not_say_its_version_is_named() -> None:
    assert versions.of_kubelet("") == [versions.unknown("kubelet", "'' is not a version")]


def test_no_kubelet_fills_the_log() -> None:
    assert versions.of_kubelet("v1.36." + "9" * 100_000)[0].fields["version"] == "v1.36." + "9" * 58


def test_the_versions_that_were_run_are_those_that_can_be_chosen() -> None:
    tested = versions.minor_of(pinned.tested_with())
    chosen = {versions.minor_of(minor) for minor in pinned.other_minors()} | {tested}

    assert chosen == {Minor(1, each) for each in range(versions.OLDEST_RUN.minor, versions.NEWEST_RUN.minor + 1)}
