"""The versions that the Go modules under `servers/` pin, and the Kubernetes version of this run.

All tests use the Kubernetes in `servers/kubernetes`. Each `servers/kubernetes-MINOR` pins another version:
`E2E_KUBERNETES=1.34` selects it for a whole run, with its kube-apiserver, its controllers and its kubelet.
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
    """Return the oldest Go that can build the module, from its go.mod."""
    return _first_match(r"^go (\S+)$", (module / "go.mod").read_text())


def kubernetes_module() -> str:
    """Return the folder under `servers/` of this run's Kubernetes. Raises NoSuchKubernetes."""
    minor = os.environ.get("E2E_KUBERNETES", "")
    if not minor:
        return TESTED
    if minor not in other_minors():
        message = f"E2E_KUBERNETES={minor}: choose one of {', '.join(other_minors())}, or none for {tested_with()}"
        raise NoSuchKubernetes(message)
    return f"{TESTED}-{minor}"


def other_minors() -> tuple[str, ...]:
    """Return the possible values of `E2E_KUBERNETES`, such as `1.34`, the oldest first."""
    return tuple(sorted(path.name.removeprefix(f"{TESTED}-") for path in MODULES.glob(f"{TESTED}-*")))


def kubernetes_version() -> str:
    """Return the version of this run's Kubernetes servers, as `v1.36.3`. Raises NoSuchKubernetes."""
    return kubernetes_of(kubernetes_module())


def tested_with() -> str:
    """Return the default Kubernetes version of all tests, whatever this run selects."""
    return kubernetes_of(TESTED)


def kubernetes_of(module: str) -> str:
    """Return the version of the Kubernetes that the module is built from."""
    return _pinned(module, "k8s.io/kubernetes")


def etcd_version() -> str:
    """Return the version of etcd, as `v3.6.16`."""
    return _pinned("etcd", "go.etcd.io/etcd/server/v3")


def _pinned(module: str, dependency: str) -> str:
    return _first_match(rf"^\s*(?:require )?{re.escape(dependency)} (v\S+)", (MODULES / module / "go.mod").read_text())


def _first_match(pattern: str, text: str) -> str:
    found = re.search(pattern, text, re.MULTILINE)
    if found is None:
        message = f"no {pattern!r} in go.mod"
        raise ValueError(message)
    return found.group(1)
