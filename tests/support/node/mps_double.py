"""A stand-in for NVIDIA's nvidia-cuda-mps-control: a daemon that answers and quits, and has no clients.

installed(folder)            a program that is this module, for an interpreter of Python
<pipes>/silent               it hangs at the next query
<directory>/refuse           a started daemon ends at once
<logs>/control.log           CUDA_VISIBLE_DEVICES of each started daemon, one per line
"""

import os
import signal
import sys
import time
from pathlib import Path

PID_FILE = "nvidia-cuda-mps-control.pid"
SILENT = "silent"
REFUSE = "refuse"
LOG = "control.log"
_LONGEST_LIFE_S = 900.0
_QUITS_WITHIN_S = 5.0


def installed(folder: Path, interpreter: str = sys.executable) -> Path:
    """Create the program in this folder and return it. interpreter: where it runs, which may be a container."""
    program = folder / "nvidia-cuda-mps-control"
    # Directly if possible, because an image may have no shell. A path with a space requires a shell, which runs the
    # line that Python reads as a string.
    by_shell = f"""#!/bin/sh\n''''exec "{interpreter}" "$0" "$@" # '''\n"""
    first = by_shell if " " in interpreter else f"#!{interpreter}\n"
    program.write_text(first + Path(__file__).read_text(encoding="utf-8"), encoding="utf-8")
    program.chmod(0o755)
    return program


def main() -> int:
    """Run the daemon with -f, otherwise its client."""
    pipes = Path(os.environ["CUDA_MPS_PIPE_DIRECTORY"])
    return _daemon(pipes) if sys.argv[1:] == ["-f"] else _user_interface(pipes)


def _daemon(pipes: Path) -> int:
    if _pid(pipes) or (pipes.parent / REFUSE).exists():
        return 1
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    logs = Path(os.environ["CUDA_MPS_LOG_DIRECTORY"])
    with (logs / LOG).open("a", encoding="utf-8") as log:
        log.write(os.environ["CUDA_VISIBLE_DEVICES"] + "\n")
    (pipes / PID_FILE).write_text(str(os.getpid()), encoding="ascii")
    # A daemon that a test leaves behind does not stay.
    signal.sigtimedwait({signal.SIGTERM}, _LONGEST_LIFE_S)
    (pipes / PID_FILE).unlink(missing_ok=True)
    return 0


def _user_interface(pipes: Path) -> int:
    for line in sys.stdin:
        pid = _pid(pipes)
        if not pid:
            sys.stdout.write("Cannot find MPS control daemon process\n")
            return 1
        if (pipes / SILENT).exists():
            signal.sigtimedwait({signal.SIGUSR1}, _LONGEST_LIFE_S)
        if line.strip() == "quit":
            os.kill(pid, signal.SIGTERM)
            give_up_at_s = time.monotonic() + _QUITS_WITHIN_S
            while _pid(pipes) and time.monotonic() < give_up_at_s:
                time.sleep(0.01)
        elif line.strip() == "get_default_active_thread_percentage":
            sys.stdout.write("100.0\n")
    return 0


def _pid(pipes: Path) -> int:
    """Return the daemon's PID; 0 if none runs."""
    try:
        pid = int((pipes / PID_FILE).read_text(encoding="ascii"))
        os.kill(pid, 0)
    except (OSError, ValueError):
        return 0
    return pid


if __name__ == "__main__":
    sys.exit(main())
