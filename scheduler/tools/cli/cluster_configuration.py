"""Configuration that a cluster's scheduler runs with, from the ConfigMap that its Deployment mounts."""

from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import ClassVar, Final, NamedTuple

import msgspec

from scheduler.kube import objects
from scheduler.kube.port import ApiError, ApiForbidden, ApiNotFound, Cluster, Kind
from scheduler.tools.cli.asking import all_of
from scheduler.tools.cli.manifests import Unreadable

SCHEDULER: Final = "gpushare-scheduler"
_FLAG: Final = "--config"


class _Wire(msgspec.Struct, rename="camel", frozen=True):
    """Wire data in which null stands for an empty list."""


class _Mount(_Wire, frozen=True):
    name: str
    mount_path: str


class _Port(_Wire, frozen=True):
    container_port: int


class _Container(_Wire, frozen=True):
    image: str = ""
    args: tuple[str, ...] | None = None
    ports: tuple[_Port, ...] | None = None
    volume_mounts: tuple[_Mount, ...] | None = None


class _ConfigMapSource(_Wire, frozen=True):
    name: str = ""


class _Volume(_Wire, frozen=True):
    name: str
    config_map: _ConfigMapSource | None = None


class ProgramSpec(_Wire, frozen=True):
    """v1.PodSpec, limited to the fields that show with which configuration a program runs."""

    containers: tuple[_Container, ...] = ()
    volumes: tuple[_Volume, ...] | None = None
    node_name: str = ""

    @property
    def ports(self) -> list[int]:
        """The ports of all containers."""
        return [port.container_port for container in self.containers for port in container.ports or ()]


class _Template(_Wire, frozen=True):
    spec: ProgramSpec = ProgramSpec()


class _DeploymentSpec(_Wire, frozen=True):
    template: _Template = _Template()


class Deployment(objects.ApiObject, frozen=True):
    """apps/v1.Deployment: its containers, and the ConfigMaps that they mount."""

    API_KIND: ClassVar[str] = "Deployment"
    spec: _DeploymentSpec = _DeploymentSpec()


_DEPLOYMENTS: Final = Kind("deployments", Deployment, "/apis/apps/v1/deployments", f"metadata.name={SCHEDULER}")


class Written(NamedTuple):
    """Text of a configuration. place: the ConfigMap that holds it."""

    place: Path
    text: str


async def deployments(cluster: Cluster) -> Sequence[Deployment]:
    """Return the scheduler's Deployments in all namespaces. Raises ApiError."""
    try:
        return await all_of(cluster, _DEPLOYMENTS)
    except ApiNotFound:
        return ()


async def written(cluster: Cluster) -> Written | None:
    """Return the configuration; None if there is none or reading it is denied, which is reported on standard error.

    A scheduler whose Deployment has another name is not found.
    """
    try:
        for one in await deployments(cluster):
            source = source_of(one.spec.template.spec)
            found = None if source is None else await text_of(cluster, one.metadata.namespace, source)
            if found is not None:
                return found
    except ApiError as error:
        if isinstance(error, ApiForbidden):
            raise
        raise Unreadable(error.message) from error
    return None


class ConfigSource(NamedTuple):
    """Reference to an entry of a ConfigMap."""

    config_map: str
    key: str


async def text_of(cluster: Cluster, namespace: str, source: ConfigSource) -> Written | None:
    """Return the text of the entry; None if it does not exist. Raises ApiError."""
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    kind = Kind("configmaps", objects.ConfigMap, path, f"metadata.name={source.config_map}")
    for one in await all_of(cluster, kind):
        if (text := (one.data or {}).get(source.key)) is not None:
            return Written(Path(f"ConfigMap {namespace}/{source.config_map}"), text)
    return None


def source_of(spec: ProgramSpec) -> ConfigSource | None:
    """Return the ConfigMap entry to which a container's `--config` leads; None if there is no such flag or entry."""
    for container in spec.containers:
        if (file := _configured(container.args or ())) is None:
            continue
        mounts = {one.name for one in container.volume_mounts or () if PurePosixPath(one.mount_path) == file.parent}
        for one in spec.volumes or ():
            if one.name in mounts and one.config_map is not None:
                return ConfigSource(one.config_map.name, file.name)
    return None


def _configured(args: Sequence[str]) -> PurePosixPath | None:
    """Return the file of `--config FILE` or `--config=FILE`."""
    for number, word in enumerate(args):
        flag, equals, value = word.partition("=")
        if flag == _FLAG:
            return PurePosixPath(value) if equals else PurePosixPath(*args[number + 1 : number + 2])
    return None
