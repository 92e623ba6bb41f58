"""Keeps the tests away from every cluster that they did not start, and apart by tiers.

pytest loads this file before any test, and so before the Kubernetes client, which reads KUBECONFIG once, at import.
A KUBECONFIG that names no file also keeps `~/.kube/config` out. A test that needs a cluster names its kubeconfig in
full: that of a server it started, or E2E_KUBECONFIG.
"""

import os
from typing import Final

import pytest

pytest_plugins: Final = ["tests.support.clocks.time_budget"]

# No file can be there: os.devnull is not a directory.
_NOWHERE: Final = f"{os.devnull}/kubeconfig"

# The service account of the pod that the tests may run in, and settings meant for a scheduler of someone else.
_FOREIGN: Final = ("KUBERNETES_SERVICE_", "GPUSHARE_SCHEDULER_")


def _forget_clusters() -> None:
    """Let nothing in the environment of this process and of its children name a cluster."""
    os.environ["KUBECONFIG"] = _NOWHERE
    for name in [name for name in os.environ if name.startswith(_FOREIGN)]:
        del os.environ[name]


_forget_clusters()


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--nightly`: the tests that take too long for every change, and nothing else."""
    parser.addoption("--nightly", action="store_true", help="run the tests marked nightly, and no others")


def pytest_configure(config: pytest.Config) -> None:
    """Declare the marker of `--nightly`."""
    config.addinivalue_line("markers", "nightly: takes long; run by make test-nightly alone")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep the tests of the tier; the others count as deselected."""
    nightly = bool(config.getoption("--nightly"))
    kept = [item for item in items if bool(item.get_closest_marker("nightly")) is nightly]
    config.hook.pytest_deselected(
        items=[item for item in items if bool(item.get_closest_marker("nightly")) is not nightly]
    )
    items[:] = kept
