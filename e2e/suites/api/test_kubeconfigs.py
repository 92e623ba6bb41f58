"""Kubeconfigs are used as kubectl uses them, or refused by name; kubectl itself, built from source, is the oracle.

Servers on loopback record what a client of a kubeconfig sends: headers, certificate, server name, proxy.

    client ──────────────────────────▶ plain or TLS server ─▶ one `Sent` a request
       └────▶ plain or TLS proxy ─────▶
"""

import asyncio
import base64
import json
import os
import re
import ssl
import subprocess
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from http import HTTPMethod
from pathlib import Path
from textwrap import dedent
from typing import Any, Final
from urllib.parse import urlsplit

import pytest

from e2e.control_plane import binaries
from e2e.suites.api.kubeconfig_cases import CASES, Case
from scheduler.kube import port
from scheduler.kube.rest.client_config.connect import ConnectError, connect
from scheduler.kube.rest.transport import Transport
from tests.support.servers.byte_server import made_certificate

_BODY: Final = b'{"kind":"Status","apiVersion":"v1","status":"Success","gitVersion":"v1"}'
_ANSWER: Final = (
    b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%b"
    % (len(_BODY), _BODY)
)
_ESTABLISHED: Final = b"HTTP/1.1 200 Connection established\r\n\r\n"
_CHUNK: Final = 2**16
# Of what says who sends a request.
_IDENTITY: Final = ("authorization", "impersonate-")


@dataclass(frozen=True)
class Sent:
    """One request. identity: headers, sorted, names in small letters. certificate: common name of the client's.

    proxied: the authorization that its proxy was shown, None where no proxy was used.
    """

    path: str
    encrypted: bool
    identity: tuple[tuple[str, str], ...]
    certificate: str
    server_name: str | None
    proxied: str | None


@dataclass
class Recorder:
    """The servers' ports by name (`http`, `https`, `proxy`, `secure-proxy`), and what has come."""

    folder: Path
    ports: dict[str, int] = field(default_factory=dict)
    sent: list[Sent] = field(default_factory=list)
    _server_name: str | None = None
    _proxied: str | None = None

    def take(self) -> list[Sent]:
        """What has come since the last call."""
        sent, self.sent = self.sent, []
        self._server_name = self._proxied = None
        return sent

    @asynccontextmanager
    async def serving(self) -> AsyncIterator["Recorder"]:
        """Certificates `server` and `me` lie in the folder, each with its key."""
        server, me = made_certificate(self.folder, "server"), made_certificate(self.folder, "me")
        tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        tls.load_cert_chain(*server)
        of_proxy = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        of_proxy.load_cert_chain(*server)
        tls.verify_mode = ssl.CERT_OPTIONAL
        tls.load_verify_locations(me[0])
        tls.sni_callback = self._named
        async with AsyncExitStack() as servers:
            for name, accept, context in (
                ("http", self._accept, None),
                ("https", self._accept, tls),
                ("proxy", self._accept_proxied, None),
                ("secure-proxy", self._accept_proxied, of_proxy),
            ):
                made = await asyncio.start_server(accept, "127.0.0.1", 0, ssl=context)
                self.ports[name] = made.sockets[0].getsockname()[1]
                await servers.enter_async_context(made)
            yield self

    def _named(self, _: ssl.SSLObject | ssl.SSLSocket, name: str | None, __: ssl.SSLContext) -> None:
        self._server_name = name

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, asyncio.IncompleteReadError):
            line, headers = _head(await reader.readuntil(b"\r\n\r\n"))
            self._record(line, headers, writer)
            writer.write(_ANSWER)
            await writer.drain()
        writer.close()

    def _record(self, line: str, headers: list[tuple[str, str]], writer: asyncio.StreamWriter) -> None:
        shown = dict(entry[0] for entry in (writer.get_extra_info("peercert") or {}).get("subject", ()))
        encrypted = writer.get_extra_info("ssl_object") is not None
        self.sent.append(
            Sent(
                urlsplit(line.split(" ")[1]).path,
                encrypted,
                tuple(sorted((name, value) for name, value in headers if name.startswith(_IDENTITY))),
                shown.get("commonName", ""),
                self._server_name if encrypted else None,
                self._proxied,
            )
        )

    async def _accept_proxied(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, asyncio.IncompleteReadError):
            line, headers = _head(await reader.readuntil(b"\r\n\r\n"))
            self._proxied = dict(headers).get("proxy-authorization", "")
            method, target, _ = line.split(" ")
            if method == "CONNECT":
                host, _, port = target.rpartition(":")
                await _tunnel(reader, writer, host, int(port))
            else:
                self._record(line, headers, writer)
                writer.write(_ANSWER)
                await writer.drain()
        writer.close()


async def _tunnel(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, host: str, port: int) -> None:
    to_reader, to_writer = await asyncio.open_connection(host, port)
    writer.write(_ESTABLISHED)
    await asyncio.wait(
        [asyncio.ensure_future(_copy(reader, to_writer)), asyncio.ensure_future(_copy(to_reader, writer))],
        return_when=asyncio.ALL_COMPLETED,
    )


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while chunk := await reader.read(_CHUNK):
            writer.write(chunk)
            await writer.drain()
    writer.close()


def _head(received: bytes) -> tuple[str, list[tuple[str, str]]]:
    """The request's line, and its headers with names in small letters."""
    line, *rest = received.decode().split("\r\n")
    pairs = (one.partition(":") for one in rest if one)
    return line, [(name.lower(), value.strip()) for name, _, value in pairs]


_PATH: Final = "/version"
_BROKEN: Final = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"
# Answers as a plugin does, and keeps what it was asked.
_PLUGIN: Final = """\
    #!/bin/sh
    printf '%s\\n' "$KUBERNETES_EXEC_INFO" >> "{folder}/asked"
    version=$(printf '%s' "$KUBERNETES_EXEC_INFO" | sed 's/.*"apiVersion": *"\\([^"]*\\)".*/\\1/')
    kind=ExecCredential
    status="\\"token\\": \\"${{PLUGIN_TOKEN-of-plugin}}\\""
    case "$1" in
    pair) status='"clientCertificateData": "{crt}", "clientKeyData": "{key}"' ;;
    half) status='"token": "t", "clientCertificateData": "{crt}"' ;;
    kind) kind=Other ;;
    esac
    printf '{{"apiVersion": "%s", "kind": "%s", "status": {{%s}}}}' "$version" "$kind" "$status"
"""


@dataclass
class Site:
    """A folder with the files that kubeconfigs name, the recording servers, and kubectl."""

    folder: Path
    recorder: Recorder
    kubectl: Path

    def written(self, case: Case) -> dict[str, str]:
        """Write the case's files; the environment of its clients."""
        for name, content in case.files.items():
            if content is not None:
                text = content if isinstance(content, str) else json.dumps(content)
                path = self.folder / name
                path.write_text(self._filled(text), encoding="utf-8")
        files = os.pathsep.join(str(self.folder / name) for name in case.files)
        programs = f"{self.folder}:{os.environ['PATH']}"
        return {"PATH": programs, "HOME": str(self.folder / "home"), "KUBECONFIG": files} | case.environment

    def asked(self) -> list[Any]:
        """What the credential plugin was asked since the last call, without keys that hold nothing."""
        file = self.folder / "asked"
        lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
        file.unlink(missing_ok=True)
        return [_without_nulls(json.loads(line)) for line in lines if line]

    def by_kubectl(self, environment: dict[str, str]) -> tuple[list[Sent], list[Any], str]:
        """What it sent, what it asked a plugin, and why it sent nothing."""
        command = [str(self.kubectl), "--request-timeout=5s", "get", "--raw", _PATH]
        ran = subprocess.run(
            command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=30
        )
        return self.recorder.take(), self.asked(), ran.stderr

    async def by_us(self, environment: dict[str, str]) -> tuple[list[Sent], list[Sent], list[Any], str]:
        """What a GET and a bare POST sent, what a plugin was asked, and why nothing was sent."""
        try:
            connection = await connect(environment)
        except ConnectError as error:
            return self.recorder.take(), [], self.asked(), str(error)
        transport = Transport(connection, connections=2)
        try:
            await transport.send(HTTPMethod.GET, _PATH, answers="Status", timeout_s=5.0)
            got = self.recorder.take()
            await transport.write(HTTPMethod.POST, _PATH, b"{}", answers="Status", timeout_s=5.0)
            return got, self.recorder.take(), self.asked(), ""
        except port.ApiError as error:
            return self.recorder.take(), [], self.asked(), str(error)
        finally:
            await transport.close()

    def _filled(self, text: str) -> str:
        ports = self.recorder.ports
        values = {
            **{
                name: f"{name if name.startswith('http') else 'http'}://127.0.0.1:{port}"
                for name, port in ports.items()
            },
            "secure-proxy": f"https://127.0.0.1:{ports['secure-proxy']}",
            "host": f"127.0.0.1:{ports['https']}",
            "proxy-host": f"127.0.0.1:{ports['proxy']}",
            "ca": _base64(self.folder / "server.crt"),
            "crt": _base64(self.folder / "me.crt"),
            "key": _base64(self.folder / "me.key"),
            "folder": str(self.folder),
        }
        return re.sub(r"\{([a-z-]+)\}", lambda found: values.get(found[1], found[0]), text)


def _base64(file: Path) -> str:
    return base64.b64encode(file.read_bytes()).decode()


def _without_nulls(value: Any) -> Any:  # noqa: ANN401 - JSON
    if isinstance(value, dict):
        return {key: _without_nulls(inner) for key, inner in value.items() if inner is not None}
    return value


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    async with Recorder(tmp_path).serving() as recorder:
        site = Site(tmp_path, recorder, binaries.ensure(["kubectl"])["kubectl"])
        (tmp_path / "sub").mkdir()
        (tmp_path / "token").write_text("of-file\n", encoding="utf-8")
        (tmp_path / "empty").touch()
        server = (tmp_path / "server.crt").read_text(encoding="utf-8")
        (tmp_path / "bundle.crt").write_text(f"{_BROKEN}{server}", encoding="utf-8")
        in_line = {
            name: (tmp_path / f"me.{name}").read_text(encoding="utf-8").replace("\n", "\\n") for name in ("crt", "key")
        }
        plugin = tmp_path / "plugin"
        plugin.write_text(dedent(_PLUGIN).format(folder=tmp_path, **in_line), encoding="utf-8")
        plugin.chmod(0o755)
        yield site


async def _differs(site: Site, case: Case, monkeypatch: pytest.MonkeyPatch) -> str:
    """Why the case fails, or nothing."""
    environment = site.written(case)
    monkeypatch.setenv("PATH", environment["PATH"])
    theirs, their_plugin, why = await asyncio.to_thread(site.by_kubectl, environment)
    ours, posted, our_plugin, refusal = await site.by_us(environment)
    if bool(theirs) == case.kubectl_refuses:
        return f"kubectl sent {theirs}: {why}"
    if case.refused:
        found = re.search(case.refused, refusal)
        return "" if found and not ours else f"we sent {ours}, saying {refusal!r}"
    if not ours or (ours, our_plugin) != (theirs, their_plugin):
        return f"kubectl sent {theirs} with {their_plugin}, we {ours} with {our_plugin}, saying {refusal!r}"
    return "" if posted == ours else f"a GET sent {ours}, a POST {posted}"


async def test_every_kubeconfig_is_used_as_kubectl_uses_it_or_refused_by_name(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed = {}
    for case in CASES:
        if why := await _differs(site, case, monkeypatch):
            failed[case.name] = why

    assert not failed, "\n".join(f"{name}: {why}" for name, why in failed.items())
