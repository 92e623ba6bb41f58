"""Selects the cluster for the tests of a run, by E2E_PROVIDER.

local     (default) `e2e.control_plane.cluster`: started for the run, for these tests alone.
existing  the cluster of E2E_KUBECONFIG and E2E_CONTEXT, both required; only tests marked
          `any_cluster` run there, and they stay inside their own namespaces.
kind      the cluster of `make kind`; the same tests.
"""

import asyncio
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from types import TracebackType
from typing import Final, Protocol, Self

from e2e.control_plane import cache
from e2e.control_plane.admin import Access
from e2e.control_plane.cluster import ControlPlane
from scheduler.kube.rest.client_config.connect import connect

CHOICES: Final = ("local", "existing", "kind")
# The name in e2e/kind/up.sh.
_KIND_CONTEXT: Final = "kind-gpushare"


class NoSuchProvider(Exception):
    """E2E_PROVIDER, or a setting that it needs, is not usable; the message says what to set."""


class Target(Protocol):
    """A cluster that answers."""

    @property
    def context(self) -> str:
        """The context to choose in the kubeconfig."""
        ...

    def access(self) -> Access:
        """Return the access of the user who runs the tests."""
        ...

    def kubeconfig_path(self) -> Path:
        """Return that user's file for `--kubeconfig`."""
        ...


class Provider(Protocol):
    """Source of a run's cluster."""

    @property
    def ours_alone(self) -> bool:
        """True if tests may create nodes and change cluster-scoped objects."""
        ...

    @property
    def has_controllers(self) -> bool:
        """True if a controller empties deleted namespaces."""
        ...

    @property
    def installed(self) -> bool:
        """True if the scheduler and the device plugin are, or should be, installed there."""
        ...

    def started(self) -> AbstractContextManager[Target]:
        """Return a context with the cluster."""
        ...


class Local:
    """A control plane on this machine."""

    ours_alone = True
    has_controllers = False
    installed = False

    def started(self) -> AbstractContextManager[Target]:
        """Start etcd and kube-apiserver. Raises the same errors as entering `ControlPlane`."""
        return ControlPlane()


class ExistingCluster:
    """One context of one kubeconfig; enter it to read it, outside any event loop.

    Credentials are taken once: a token that expires during the run ends the run.
    """

    def __init__(self, kubeconfig: Path, context: str) -> None:
        self._kubeconfig = kubeconfig
        self._access: Access | None = None
        self.context = context

    def __enter__(self) -> Self:
        """Read the kubeconfig and run its credential plugin, if it has one."""
        self._access = asyncio.run(self._read())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Leave the cluster unchanged."""

    def access(self) -> Access:
        """Return the kubeconfig's access. Raises RuntimeError outside the context."""
        if self._access is None:
            message = f"{self._kubeconfig} is not read yet: enter the cluster first"
            raise RuntimeError(message)
        return self._access

    def kubeconfig_path(self) -> Path:
        """Return the given file."""
        return self._kubeconfig

    async def _read(self) -> Access:
        connection = await connect({}, kubeconfig=self._kubeconfig, context=self.context)
        identity = dict(await connection.credentials.identity())
        await connection.credentials.close()
        return Access(connection.url, connection.tls, identity.get("Authorization"))


class Existing:
    """A foreign cluster: named in full, or not touched."""

    ours_alone = False
    has_controllers = True
    installed = True

    def __init__(self, kubeconfig: Path, context: str) -> None:
        self._kubeconfig = kubeconfig
        self._context = context

    def started(self) -> AbstractContextManager[Target]:
        """Start nothing; read the kubeconfig."""
        return ExistingCluster(self._kubeconfig, self._context)


def chosen(environment: Mapping[str, str]) -> Provider:
    """Return the provider that the environment selects. Raises NoSuchProvider."""
    name = environment.get("E2E_PROVIDER") or "local"
    if name == "local":
        return Local()
    if name == "existing":
        return _existing(environment)
    if name == "kind":
        return _kind()
    message = f"E2E_PROVIDER={name} is none; choose one of: {', '.join(CHOICES)}"
    raise NoSuchProvider(message)


def _existing(environment: Mapping[str, str]) -> Existing:
    missing = [key for key in ("E2E_KUBECONFIG", "E2E_CONTEXT") if not environment.get(key)]
    if missing:
        message = f"E2E_PROVIDER=existing needs {' and '.join(missing)}: the cluster to use is never guessed"
        raise NoSuchProvider(message)
    kubeconfig = Path(environment["E2E_KUBECONFIG"])
    if not kubeconfig.is_file():
        message = f"E2E_KUBECONFIG={kubeconfig} is not a file"
        raise NoSuchProvider(message)
    return Existing(kubeconfig, environment["E2E_CONTEXT"])


def _kind() -> Existing:
    kubeconfig = kind_kubeconfig()
    if not kubeconfig.is_file():
        message = f"E2E_PROVIDER=kind: there is no {kubeconfig}; run make kind first"
        raise NoSuchProvider(message)
    return Existing(kubeconfig, _KIND_CONTEXT)


def kind_kubeconfig() -> Path:
    """Return the file that `make kind` writes; never the user's own."""
    return cache.folder() / "kind" / "kubeconfig"
