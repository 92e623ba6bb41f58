"""What a bind request costs the client: over a bare connection, and by aiohttp.

    python -m e2e.bench.requests              into docs/benchmarks.md
    python -m e2e.bench.requests --quick      a tenth of the requests, printed only

A server in a process of its own (`request_server.py`) answers every request over TLS as the API server answers a
Binding. Each request is a task with a time-out, as in the scheduler; both clients take turns. Times are of the
processor.
"""

import argparse
import asyncio
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from http import HTTPMethod
from pathlib import Path
from typing import Final, NamedTuple

import uvloop
import yaml
from rich.console import Console
from rich.table import Table

from e2e.bench import document
from scheduler.kube import port
from scheduler.kube.rest import writing
from scheduler.kube.rest.client_config.connect import connect
from scheduler.kube.rest.transport import Transport
from tests.support.repository import ROOT

_REQUESTS: Final = 1000
_ROUNDS: Final = 25
_IN_FLIGHT: Final = 64
_TIMEOUT_S: Final = 4.0
_AT_MOST: Final = 0.3
_TITLE: Final = "A bind request"
_EXPLANATION: Final = """\
CPU of the client for one Binding over TLS, {in_flight} in flight, each a task with a time-out; a server in another
process answers as the API server does. Both clients take turns: medians of {rounds} rounds of {requests:,} requests
(minimum - maximum).
"""
_BINDING: Final = port.Binding(
    port.PodKey("default", "pod-0123456789", "0" * 36), "node-0001", {f"gpushare/key-{i}": "x" * 40 for i in range(8)}
)
_PATH: Final = "/api/v1/namespaces/default/pods/pod-0123456789/binding?timeout=4s"
_Send = Callable[[], Awaitable[object]]


class RequestFigures(NamedTuple):
    """Microseconds of CPU per request, of each round."""

    aiohttp_us: list[float]
    bare_us: list[float]

    @property
    def ratio(self) -> float:
        """Of the medians."""
        return statistics.median(self.bare_us) / statistics.median(self.aiohttp_us)


def main(arguments: list[str] | None = None) -> int:
    """Measure, print the table, write it where asked."""
    parser = argparse.ArgumentParser(prog="python -m e2e.bench.requests", description="Measure a bind request.")
    parser.add_argument("--quick", action="store_true", help="a tenth of the requests, printed only")
    quick = parser.parse_args(arguments).quick
    requests = _REQUESTS // 10 if quick else _REQUESTS
    measured = rows(measure(requests, _ROUNDS))
    table = Table("figure", "measured", "must reach", title=_TITLE)
    for row in measured:
        table.add_row(*row)
    Console().print(table)
    if not quick:
        head = ("| figure | measured | must reach |", "|---|---:|---|")
        body = "\n".join((*head, *(f"| {' | '.join(row)} |" for row in measured)))
        explained = _EXPLANATION.format(in_flight=_IN_FLIGHT, rounds=_ROUNDS, requests=requests)
        section = f"## {_TITLE}\n\n{explained}\n{body}\n\n{document.today()}. {document.description()}."
        path = document.PATH
        path.write_text(document.with_section(path.read_text() if path.exists() else "", "requests", section))
    return 0


def measure(requests: int, rounds: int) -> RequestFigures:
    """Measure both clients, in turn: so many rounds of so many requests each."""
    with tempfile.TemporaryDirectory() as folder, _serving(Path(folder)) as kubeconfig:
        return uvloop.run(_measured(kubeconfig, requests, rounds))


async def _measured(kubeconfig: Path, requests: int, rounds: int) -> RequestFigures:
    transport = Transport(await connect({}, kubeconfig=kubeconfig), _IN_FLIGHT)

    async def by_aiohttp() -> None:
        body = writing.binding_body(_BINDING)
        await transport.send(HTTPMethod.POST, _PATH, body, answers="Status", timeout_s=_TIMEOUT_S)

    async def over_a_bare_connection() -> None:
        await transport.write(
            HTTPMethod.POST, _PATH, writing.binding_body(_BINDING), answers="Status", timeout_s=_TIMEOUT_S
        )

    figures = RequestFigures([], [])
    for _ in range(rounds):
        figures.aiohttp_us.append(await _cpu_us(by_aiohttp, requests))
        figures.bare_us.append(await _cpu_us(over_a_bare_connection, requests))
    await transport.close()
    return figures


async def _cpu_us(send: _Send, requests: int) -> float:
    """Per request, once all connections are open."""
    await _send_all(send, _IN_FLIGHT)
    began_s = time.process_time()
    await _send_all(send, requests)
    return (time.process_time() - began_s) / requests * 1e6


async def _send_all(send: _Send, requests: int) -> None:
    left = iter(range(requests))

    async def one() -> None:
        await send()

    async def one_after_the_other() -> None:
        for _ in left:
            await asyncio.create_task(one())

    async with asyncio.TaskGroup() as senders:
        for _ in range(_IN_FLIGHT):
            senders.create_task(one_after_the_other())


@contextmanager
def _serving(folder: Path) -> Iterator[Path]:
    """A kubeconfig for the server, which runs meanwhile."""
    certificate, key = folder / "tls.crt", folder / "tls.key"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=server"]
    command += ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(certificate)]
    subprocess.run(command, check=True, capture_output=True)
    server = [sys.executable, "-m", "e2e.bench.request_server", str(certificate), str(key)]
    with subprocess.Popen(server, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None  # noqa: S101 - it is a pipe
        url = f"https://127.0.0.1:{int(running.stdout.readline())}"
        kubeconfig = folder / "kubeconfig"
        kubeconfig.write_text(yaml.safe_dump(_kubeconfig(url, certificate)))
        try:
            yield kubeconfig
        finally:
            running.terminate()


def _kubeconfig(url: str, certificate: Path) -> dict[str, object]:
    return {
        "current-context": "server",
        "contexts": [{"name": "server", "context": {"cluster": "server", "user": "user"}}],
        "clusters": [{"name": "server", "cluster": {"server": url, "certificate-authority": str(certificate)}}],
        "users": [{"name": "user", "user": {"token": "t" * 1000}}],  # as long as that of a service account
    }


def rows(figures: RequestFigures) -> list[tuple[str, str, str]]:
    """Figure, measured, must reach."""
    said = "reached" if figures.ratio <= _AT_MOST else "**missed**"
    return [
        ("by aiohttp, with this program's options", _spread(figures.aiohttp_us), ""),
        ("over a bare connection", _spread(figures.bare_us), ""),
        ("client CPU per bind request ÷ aiohttp's", f"{figures.ratio:.2f}", f"≤ {_AT_MOST}, {said}"),
    ]


def _spread(us: list[float]) -> str:
    return f"{statistics.median(us):.0f} µs ({min(us):.0f} - {max(us):.0f})"


if __name__ == "__main__":
    sys.exit(main())
