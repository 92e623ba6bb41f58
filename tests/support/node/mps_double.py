"""A stand-in for NVIDIA's nvidia-cuda-mps-control, by both protocols: a daemon that answers and quits.

installed(folder)            a program that is this module, for an interpreter of Python
<pipes>/silent               it hangs at the next query
<directory>/refuse           a started daemon ends at once
<logs>/control.log           CUDA_VISIBLE_DEVICES of each started daemon, one per line
<logs>/commands.log          commands that change something, one per line
<pipes>/clients              PIDs of the clients, one per line
<pipes>/hanging              a client does not end when it is terminated
<pipes>/mps/<name>/control   of a namespace; <pipes>/mps/<name>/busy: it has a client, so nothing can change it
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
COMMANDS = "commands.log"
CLIENTS = "clients"
HANGING = "hanging"
BUSY = "busy"
_BY_3 = "by-3"
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
    pipes, arguments = Path(os.environ["CUDA_MPS_PIPE_DIRECTORY"]), sys.argv[1:]
    if arguments[:1] == ["-f"]:
        return _daemon(pipes, by_3=arguments[1:] == ["-p", "3", "-m"])
    return _commands(pipes, arguments[2:]) if arguments[:2] == ["-p", "3"] else _user_interface(pipes)


def _daemon(pipes: Path, *, by_3: bool) -> int:
    if by_3:
        (pipes / _BY_3).touch()
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
            _quit(pipes)
        elif line.strip() == "get_default_active_thread_percentage":
            sys.stdout.write("100.0\n")
        elif line.strip() == "get_server_list":
            sys.stdout.write(f"{pid}\n")
        elif line.strip() == f"get_client_list {pid}":
            sys.stdout.write(_clients(pipes))
        elif line.startswith(f"terminate_client {pid} "):
            _terminate(pipes, line.split()[2])
    return 0


def _commands(pipes: Path, command: list[str]) -> int:
    """Run one command of protocol 3."""
    if not _pid(pipes) or not (pipes / _BY_3).exists():
        sys.stdout.write("Cannot connect to the MPS control daemon\n")
        return 1
    if (pipes / SILENT).exists():
        signal.sigtimedwait({signal.SIGUSR1}, _LONGEST_LIFE_S)
    what, name = " ".join(command[:2]), command[2] if len(command) > 2 else ""
    if command == ["-q"]:
        _quit(pipes)
    elif command == ["server", "list", "--format=csv,noheader"]:
        names = [path.parent.name for path in pipes.glob("*/control")]
        sys.stdout.write("".join(f"{server},0,4711,Ready,{pipes / server},-,-\n" for server in names))
    elif what == "server create":
        _create(pipes, pipes / name, command)
    elif what.startswith("namespace "):
        return _namespace(pipes, command)
    elif command == ["client", "list", "--all", "--format=csv,noheader"]:
        sys.stdout.write("".join(f"{pid},mps,GPU,0,ns,a program, with 77\n" for pid in _clients(pipes).split()))
    elif what == "client terminate":
        _terminate(pipes, name)
    else:
        return 2
    return 0


def _namespace(pipes: Path, command: list[str]) -> int:
    _, verb, name, server, *_ = command
    folder = pipes / server.removeprefix("--server=") / name
    if (folder / BUSY).exists() or (folder / "control").exists() == (verb == "create"):
        _note(pipes, ["refused", *command])
        sys.stdout.write("the namespace exists, does not exist, or has clients\n")
        return 1
    if verb == "create":
        _create(pipes, folder, command)
        return 0
    _note(pipes, command)
    if verb == "delete":
        (folder / "control").unlink()
        folder.rmdir()
    return 0


def _create(pipes: Path, folder: Path, command: list[str]) -> None:
    folder.mkdir(parents=True)
    (folder / "control").touch()
    _note(pipes, command)


def _clients(pipes: Path) -> str:
    return (pipes / CLIENTS).read_text(encoding="ascii") if (pipes / CLIENTS).exists() else ""


def _terminate(pipes: Path, pid: str) -> None:
    _note(pipes, ["client", "terminate", pid])
    if (pipes / HANGING).exists():
        signal.sigtimedwait({signal.SIGUSR1}, _LONGEST_LIFE_S)
    (pipes / CLIENTS).write_text("".join(f"{one}\n" for one in _clients(pipes).split() if one != pid))


def _note(pipes: Path, command: list[str]) -> None:
    log = pipes.parent / "log" / pipes.name / COMMANDS
    with log.open("a", encoding="utf-8") as opened:
        opened.write(" ".join(command) + "\n")


def _quit(pipes: Path) -> None:
    os.kill(_pid(pipes), signal.SIGTERM)
    give_up_at_s = time.monotonic() + _QUITS_WITHIN_S
    while _pid(pipes) and time.monotonic() < give_up_at_s:
        time.sleep(0.01)


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
