"""`make cluster`: `python -m e2e.local_cluster up`.

`up` builds what is missing as the user who asks, then holds the cluster as root: by sudo if needed.
Exit codes: 0 ended, or one is up already; 1 not started; 3 Go, or something else that a build takes, is missing.
"""

import os
import shutil
import sys
from typing import Final, NoReturn

from e2e.control_plane import binaries, cache
from e2e.local_cluster import cluster
from e2e.local_cluster.cluster import say
from e2e.node import node_programs

_FIRST: Final = """\
make cluster: Kubernetes on this machine, two nodes with simulated GPUs. Their kubelets need root.
Without root: make demo, or a control plane alone: .venv/bin/python -m e2e.control_plane.cluster up
"""
_SERVERS: Final = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl")
# Of the user who asks; sudo forgets them.
_KEPT: Final = ("PATH", "E2E_KUBERNETES")


def up() -> int:
    """Hold a cluster until Ctrl-C, unless one is up."""
    if cluster.is_up():
        say(f"A cluster is up already.\n{cluster.next_steps()}")
        return 0
    say(_FIRST)
    missing = node_programs.lacking(root=False)
    if missing is None and os.geteuid() != 0 and shutil.which("sudo") is None:
        missing = "it takes root, and there is no sudo on PATH"
    if missing is not None:
        say(f"not started: {missing}")
        return 1
    try:
        binaries.ensure((*_SERVERS, *binaries.OF_A_NODE))
        node_programs.programs()
    except cluster.EXPECTED as error:
        say(f"not started: {error}")
        return 1 if isinstance(error, binaries.BuildFailed) else binaries.UNAVAILABLE_EXIT
    return cluster.hold() if os.geteuid() == 0 else _as_root()


def _as_root() -> NoReturn:
    """Become `hold` by sudo, which may ask for the password, with the cache of this user, where everything is built.

    Nothing is written into this clone: a file of root there would be in the way of its owner.
    """
    kept = [f"{name}={os.environ[name]}" for name in _KEPT if name in os.environ]
    own = [f"XDG_CACHE_HOME={cache.folder().parent}", "PYTHONDONTWRITEBYTECODE=1", *kept]
    os.execvp("sudo", ["sudo", "env", *own, sys.executable, "-m", "e2e.local_cluster", "hold"])  # noqa: S606 - no shell


if __name__ == "__main__":
    sys.exit({"up": up, "hold": cluster.hold}[sys.argv[1]]())
