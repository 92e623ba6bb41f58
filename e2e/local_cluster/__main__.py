"""`make cluster` and `make cluster-down`: `python -m e2e.local_cluster up | down`.

`up` builds what is missing as the user who asks, then starts the keeper, `hold`, as root: by sudo if needed.
Exit codes: 0 done, or nothing to do; 1 not done; 3 Go, or something else that a build takes, is missing.
"""

import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from typing import Final

from e2e.control_plane import binaries, cache
from e2e.local_cluster import keeper, record
from e2e.local_cluster.keeper import say
from e2e.node import node_programs
from tests.support.repository import ROOT

_FIRST: Final = """\
make cluster: Kubernetes on this machine, two nodes with simulated GPUs. Their kubelets need root.
Without root: make demo, or a control plane alone: .venv/bin/python -m e2e.control_plane.cluster up
"""
_NEXT: Final = """\

For this shell, and any other:

  {exports}

Then, in this folder:

  kubectl apply -f docs/examples/first-pod.yaml
  kubectl wait --for=condition=Ready pod/first-pod && kubectl logs first-pod     # the card that it has
  kubectl inspect gpushare -d                                                    # who holds how much of which card
  kubectl apply -f docs/examples/too-big.yaml && gpushare-scheduler explain too-big
  make cluster-down                                                              # nothing of it stays

More: docs/local-cluster.md
"""
_SERVERS: Final = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl")
_ENDS_WITHIN_S: Final = 90.0
_LOOK_EVERY_S: Final = 0.05
_INTERRUPTED: Final = 130
# Of the user who asks; sudo forgets them.
_KEPT: Final = ("PATH", "E2E_KUBERNETES")


def up() -> int:
    """Start the cluster, unless one is up, and say how to reach it."""
    with record.lock() as ours:
        if not ours:
            say(f"A cluster is up already.\n{_next()}")
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
    except keeper.EXPECTED as error:
        say(f"not started: {error}")
        return 1 if isinstance(error, binaries.BuildFailed) else binaries.UNAVAILABLE_EXIT
    return _start() if os.geteuid() == 0 else _as_root("up")


def down() -> int:
    """End the cluster and remove all of it; also what one that was killed has left."""
    if (last := record.read()) is None:
        say("No cluster is up.")
        return 0
    if os.geteuid() != 0:
        return _as_root("down")
    began_s = time.monotonic()
    say("ending the cluster")
    if not _cleared():
        os.kill(last.keeper, signal.SIGTERM)
    while not _cleared():
        if time.monotonic() - began_s > _ENDS_WITHIN_S:
            say(f"the process that holds it does not end: kill -9 {last.keeper}, then make cluster-down again")
            return 1
        time.sleep(_LOOK_EVERY_S)
    say(f"gone after {time.monotonic() - began_s:.1f} s")
    return 0


def _cleared() -> bool:
    """Remove what is left, once the keeper has ended. Returns whether it has."""
    with record.lock() as ours:
        if ours:
            record.clear()
        return ours


def _start() -> int:
    began_s = time.monotonic()
    say("starting:")
    # In a session of its own, so that Ctrl-C does not reach it.
    launched = subprocess.Popen(
        [sys.executable, "-m", "e2e.local_cluster", "hold"],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        for line in launched.stdout or ():
            if line.rstrip() == keeper.READY:
                say(f"up after {time.monotonic() - began_s:.1f} s\n{_next()}")
                return 0
            say(line.rstrip())
        launched.wait()
    except KeyboardInterrupt:
        say("interrupted: ending what has started")
        launched.terminate()
        launched.wait()
        return _INTERRUPTED
    say("not started")
    return 1


def _as_root(verb: str) -> int:
    """The same command by sudo, which may ask for the password, with the cache of this user, where everything is built.

    Nothing is written into this clone: a file of root there would be in the way of its owner.
    """
    kept = [f"{name}={os.environ[name]}" for name in _KEPT if name in os.environ]
    own = [f"XDG_CACHE_HOME={cache.folder().parent}", "PYTHONDONTWRITEBYTECODE=1", *kept]
    command = ["sudo", "env", *own, sys.executable, "-m", "e2e.local_cluster", verb]
    return subprocess.run(command, cwd=ROOT, check=False).returncode


def _next() -> str:
    kubeconfig, programs = (shlex.quote(str(record.home() / name)) for name in ("kubeconfig", "bin"))
    return _NEXT.format(exports=f"export KUBECONFIG={kubeconfig} PATH={programs}:$PATH")


if __name__ == "__main__":
    sys.exit({"up": up, "down": down, "hold": keeper.hold}[sys.argv[1]]())
