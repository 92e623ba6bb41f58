"""Child processes that end on request, and when this process ends.

    start -> running --stop (SIGTERM, wait, SIGKILL)--> ended --start_again--> running
                     --death of this process (tether)--> killed

Each runs in its own session, so that Ctrl-C reaches only this process, which chooses the order of ends.
A child is tied to the thread that started it: start from a thread that outlives it (the main one).
"""

import os
import secrets
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

# Below the range for outgoing connections: a client that retries against a stopped server must not get the server's own
# port as its source, and so talk to itself.
_PORTS: Final = range(20_000, 32_768)
# Workers of one test run choose from different ports: none is returned twice before its server listens.
_MOST_WORKERS: Final = 16
_WORKER: Final = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
_OWN_PORTS: Final = _PORTS[_WORKER % _MOST_WORKERS :: _MOST_WORKERS]
# Returned ports may not have a listener yet.
_given: set[int] = set()
_TETHER: Final = Path(__file__).with_name("tether.py")
_SWEEPER: Final = Path(__file__).with_name("sweeper.py")
_STANDALONE_PYTHON: Final = (sys.executable, "-I", "-S")


class Died(Exception):
    """A child ended unexpectedly; the message ends with the last lines of its log."""


@dataclass(slots=True)
class Child:
    """A program and its output file. process: of its last start. launch: starts it."""

    name: str
    process: subprocess.Popen[bytes]
    log: Path
    launch: Callable[[], subprocess.Popen[bytes]]

    @property
    def pid(self) -> int:
        """Process ID; the program itself, because the tether execs it."""
        return self.process.pid

    def check_alive(self) -> None:
        """Raise Died if it has ended."""
        if (exit_code := self.process.poll()) is not None:
            tail = self.log.read_text(errors="replace")[-3000:]
            message = f"{self.name} ended with exit code {exit_code}\n{tail}"
            raise Died(message)

    def start_again(self) -> None:
        """Start the same command again, after it has ended."""
        self.process = self.launch()

    def stop(self, *, grace_s: float = 10.0) -> None:
        """Send SIGTERM, and SIGKILL if it still runs after `grace_s`; return once it has ended."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(grace_s)
        except subprocess.TimeoutExpired:
            self.kill()

    def kill(self) -> None:
        """Send SIGKILL; return once it has ended."""
        self.process.kill()
        self.process.wait()


def start(name: str, command: Sequence[str | Path], log: Path, environment: Mapping[str, str]) -> Child:
    """Start `command` (its first word an absolute path); append its output to `log`.

    environment: complete; nothing is inherited, so no KUBECONFIG and no proxy reaches a server.
    """

    def launch() -> subprocess.Popen[bytes]:
        with log.open("ab") as output:
            return subprocess.Popen(
                [*_STANDALONE_PYTHON, _TETHER, str(os.getpid()), *command],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=dict(environment),
                start_new_session=True,
            )

    return Child(name, launch(), log, launch)


def sweep_when_gone(folder: Path) -> subprocess.Popen[bytes]:
    """Start the process that removes `folder` when its standard input is closed or this process ends."""
    return subprocess.Popen([*_STANDALONE_PYTHON, _SWEEPER, folder], stdin=subprocess.PIPE, start_new_session=True)


def free_ports(count: int) -> list[int]:
    """Return different loopback ports without a listener that this process has not returned before."""
    chosen: list[int] = []
    with ExitStack() as held:
        for port in secrets.SystemRandom().sample(sorted({*_OWN_PORTS} - _given), k=len(_OWN_PORTS) - len(_given)):
            probe = held.enter_context(socket.socket())
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            _given.add(port)
            chosen.append(port)
            if len(chosen) == count:
                return chosen
    message = f"no {count} free loopback ports among {len(_OWN_PORTS)} of {_PORTS.start}-{_PORTS.stop - 1}"
    raise OSError(message)
