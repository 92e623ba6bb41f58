"""Execs another program that dies with its parent: `python tether.py PARENT_PID COMMAND…`.

This is a separate step between fork and exec, because Python code in `preexec_fn` may deadlock in a parent with
threads. Linux only; elsewhere the program starts without the tie. Source: prctl(2), PR_SET_PDEATHSIG: kept across
execve, cleared by fork.
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def main(parent_pid: int, command: list[str]) -> None:
    """Tie this process to its parent and exec `command`; does not return."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent_pid:  # it died before the tie was set
            sys.exit(1)
    os.execv(command[0], command)  # noqa: S606 - there is no shell, by intent


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
