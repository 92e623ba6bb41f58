"""Keeps the tests away from every cluster that they did not start.

pytest loads this file before any test, and so before the Kubernetes client, which reads KUBECONFIG once, at import.
A KUBECONFIG that names no file also keeps `~/.kube/config` out. A test that needs a cluster names its kubeconfig in
full: that of a server it started, or E2E_KUBECONFIG.
"""

import os
from typing import Final

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
