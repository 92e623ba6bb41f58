"""`kubectl gpushare version`: versions of this program, the scheduler, the device plugins and the API server."""

import asyncio
from collections.abc import Iterator, Sequence
from typing import Final

from scheduler.kube.port import ApiError
from scheduler.kube.rest.client import KubeCluster
from scheduler.process.build_info import build_info
from scheduler.tools.cli.asking import all_of
from scheduler.tools.cli.cluster_configuration import SCHEDULER, ProgramSpec, deployments
from scheduler.tools.cli.manifests import Unreadable
from scheduler.tools.cli.node_reports import PLUGIN_PODS
from scheduler.tools.cli.session import connected_to
from scheduler.tools.cli.target import Target
from scheduler.tools.doctor.facts import PLUGIN_LABEL
from scheduler.tools.explain.answers import Answer
from scheduler.tools.explain.tones import Line

_LABEL: Final = "=".join(PLUGIN_LABEL)


class ProgramVersions(Answer, frozen=True):
    """Versions. client: this program. server: the API server.

    scheduler, device_plugin: distinct images; empty if not found.
    unread: sentences about versions that could not be read.
    """

    client: str
    server: str = ""
    scheduler: tuple[str, ...] = ()
    device_plugin: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()


def versions(target: Target, *, client_only: bool) -> ProgramVersions:
    """Return the versions. Raises Unreadable if the API server does not answer."""
    own = str(build_info())
    if client_only:
        return ProgramVersions(client=own)

    async def ask() -> ProgramVersions:
        async with connected_to(target) as cluster:
            try:
                server = (await cluster.server_version()).version
            except ApiError as error:
                raise Unreadable(error.message) from error
            return await _versions(cluster, own, server)

    return asyncio.run(ask())


async def _versions(cluster: KubeCluster, own: str, server: str) -> ProgramVersions:
    unread: list[str] = []
    schedulers: Sequence[str] = ()
    plugins: Sequence[str] = ()
    try:
        schedulers = _images([one.spec.template.spec for one in await deployments(cluster)])
    except ApiError as error:
        unread.append(f"scheduler: {error.message}")
    try:
        plugins = _images([one.spec for one in await all_of(cluster, PLUGIN_PODS)])
    except ApiError as error:
        unread.append(f"device plugin: {error.message}")
    return ProgramVersions(
        client=own, server=server, scheduler=tuple(schedulers), device_plugin=tuple(plugins), unread=tuple(unread)
    )


def _images(specs: Sequence[ProgramSpec]) -> list[str]:
    """Return the distinct images of the first containers, sorted."""
    return sorted({spec.containers[0].image for spec in specs if spec.containers})


def version_lines(found: ProgramVersions) -> Iterator[Line]:
    """Yield a line for each version."""
    yield Line(f"Client: {found.client}")
    if found.server:
        yield Line(f"Scheduler: {', '.join(found.scheduler) or f'no Deployment {SCHEDULER} found'}")
        yield Line(f"Device plugin: {', '.join(found.device_plugin) or f'no pod with label {_LABEL} found'}")
        yield Line(f"Kubernetes: {found.server}")
    for sentence in found.unread:
        yield Line(f"Cannot be read: {sentence}")
