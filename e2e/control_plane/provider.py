"""Which cluster the tests of a run get, by E2E_PROVIDER.

local     (default) `e2e.control_plane.cluster`: started for the run, ours alone.
existing  a cluster that E2E_KUBECONFIG and E2E_CONTEXT name, both in full; only tests marked
          `any_cluster` run there, and those stay inside namespaces of their own.
kind      not built yet: refused.
"""

from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Final, Protocol

from e2e.control_plane.access import Access
from e2e.control_plane.cluster import Cluster
from e2e.control_plane.existing import ExistingCluster

CHOICES: Final = ("local", "existing")


class NoSuchProvider(Exception):
    """E2E_PROVIDER, or what it needs beside it, is not usable; the message says what to set."""


class Target(Protocol):
    """A cluster that answers."""

    @property
    def context(self) -> str:
        """The context to choose in the kubeconfig."""
        ...

    def access(self) -> Access:
        """What a client of the user who runs the tests needs."""
        ...

    def kubeconfig_path(self) -> Path:
        """The file for `--kubeconfig` of that user."""
        ...


class Provider(Protocol):
    """How a run comes by its cluster."""

    @property
    def ours_alone(self) -> bool:
        """True: tests may make nodes and change what belongs to no namespace."""
        ...

    @property
    def has_controllers(self) -> bool:
        """True: somebody empties a namespace that is deleted."""
        ...

    def started(self) -> AbstractContextManager[Target]:
        """The cluster, there while the context is entered."""
        ...


class Local:
    """A control plane on this machine."""

    ours_alone = True
    has_controllers = False

    def started(self) -> AbstractContextManager[Target]:
        """Start etcd and kube-apiserver; raises what entering `Cluster` raises."""
        return Cluster()


class Existing:
    """Somebody's cluster: named in full, or not touched."""

    ours_alone = False
    has_controllers = True

    def __init__(self, kubeconfig: Path, context: str) -> None:
        self._kubeconfig = kubeconfig
        self._context = context

    def started(self) -> AbstractContextManager[Target]:
        """Start nothing; read the kubeconfig."""
        return ExistingCluster(self._kubeconfig, self._context)


def chosen(environment: Mapping[str, str]) -> Provider:
    """The provider that the environment asks for; raises NoSuchProvider."""
    name = environment.get("E2E_PROVIDER") or "local"
    if name == "local":
        return Local()
    if name == "existing":
        return _existing(environment)
    built = ", ".join(CHOICES)
    message = f"E2E_PROVIDER={name} is not built{' yet' if name == 'kind' else ''}; choose one of: {built}"
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
