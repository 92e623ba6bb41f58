"""Which versions the Go modules under `servers/` pin, and of which Kubernetes this run is.

`servers/kubernetes` is the Kubernetes that everything is tested with. Each `servers/kubernetes-MINOR` pins another one:
`E2E_KUBERNETES=1.34` chooses it for a whole run, with its kube-apiserver, its controllers and its kubelet.
"""

import os
import re
from pathlib import Path
from typing import Final

from tests.support.repository import ROOT

MODULES: Final = ROOT / "e2e" / "servers"
TESTED: Final = "kubernetes"


class NoSuchKubernetes(Exception):
    """`E2E_KUBERNETES` names a minor version that no folder under `servers/` pins; the message lists the others."""


def required_go(module: Path) -> str:
    """The oldest Go that may build the module, as its go.mod says."""
    return _first_match(r"^go (\S+)$", (module / "go.mod").read_text())


def kubernetes_module() -> str:
    """Folder under `servers/` of the Kubernetes that this run is about. Raises NoSuchKubernetes."""
    minor = os.environ.get("E2E_KUBERNETES", "")
    if not minor:
        return TESTED
    if minor not in other_minors():
        message = f"E2E_KUBERNETES={minor}: choose one of {', '.join(other_minors())}, or none for {tested_with()}"
        raise NoSuchKubernetes(message)
    return f"{TESTED}-{minor}"


def other_minors() -> tuple[str, ...]:
    """The values that `E2E_KUBERNETES` may have, such as `1.34`, the oldest first."""
    return tuple(sorted(path.name.removeprefix(f"{TESTED}-") for path in MODULES.glob(f"{TESTED}-*")))


def kubernetes_version() -> str:
    """Version of the Kubernetes servers of this run, as `v1.36.3`. Raises NoSuchKubernetes."""
    return kubernetes_of(kubernetes_module())


def tested_with() -> str:
    """Version of the Kubernetes that everything is tested with, whatever this run is about."""
    return kubernetes_of(TESTED)


def kubernetes_of(module: str) -> str:
    """Version of the Kubernetes of which the module is built."""
    return _pinned(module, "k8s.io/kubernetes")


def etcd_version() -> str:
    """Version of etcd, as `v3.6.16`."""
    return _pinned("etcd", "go.etcd.io/etcd/server/v3")


def _pinned(module: str, dependency: str) -> str:
    return _first_match(rf"^\s*(?:require )?{re.escape(dependency)} (v\S+)", (MODULES / module / "go.mod").read_text())


def _first_match(pattern: str, text: str) -> str:
    found = re.search(pattern, text, re.MULTILINE)
    if found is None:
        message = f"no {pattern!r} in go.mod"
        raise ValueError(message)
    return found.group(1)
