"""Runs the credential plugin of a kubeconfig (`exec`) as client-go does, and stops it when no caller waits for it.

    started ──exits, its pipes closed──▶ answered
       └── cancelled, or it writes more than any valid answer ──▶ killed, with its children

Source of the protocol: kubernetes.io/docs/reference/access-authn-authz/authentication, "client-go credential plugins";
client-go, plugin/pkg/client/auth/exec/exec.go.
"""

import asyncio
import contextlib
import datetime as dt
import json
import math
import os
import shutil
import signal
import sys
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from scheduler.kube.rest.client_config.kubeconfig_file import Exec
from scheduler.kube.rest.failures import one_line

_STDOUT: Final = 1
_STDERR: Final = 2
# Limit for each stream. A certificate and its key take a few thousand bytes.
_MOST_BYTES: Final = 2**20
# A killed plugin exits at once, unless the kernel blocks it.
_ENDS_WITHIN_S: Final = 1.0
_KIND: Final = "ExecCredential"


class PluginFailed(Exception):
    """The plugin returned no credentials; the message says why, and contains no secret."""


class ExecCredentialStatus(msgspec.Struct, frozen=True, rename="camel"):
    """Answer of a plugin: a token, or a certificate with its key as PEM, or both. expiration_timestamp: RFC 3339."""

    token: str = ""
    client_certificate_data: str = ""
    client_key_data: str = ""
    expiration_timestamp: str = ""

    @property
    def expires_s(self) -> float:
        """Expiry in Unix seconds, inf if the plugin names no time. Raises PluginFailed."""
        if not self.expiration_timestamp:
            return math.inf
        try:
            end = dt.datetime.fromisoformat(self.expiration_timestamp)
        except ValueError:
            end = None
        if end is None or end.tzinfo is None:
            raise PluginFailed("exec: expirationTimestamp is not a time with a zone (RFC 3339)")
        return end.timestamp()


class _Answer(msgspec.Struct, rename="camel"):
    api_version: str = ""
    kind: str = ""
    status: ExecCredentialStatus | None = None


class CredentialPlugin:
    """One plugin. cluster: cluster information for it, None unless the kubeconfig has provideClusterInfo."""

    def __init__(self, description: Exec, cluster: Mapping[str, Any] | None = None) -> None:
        self._described = description
        self._cluster = cluster

    async def run(self) -> ExecCredentialStatus:
        """Run the plugin, and return its credentials. Raises PluginFailed; OSError if it cannot be started."""
        described, interactive = self._described, self._interactive()
        # As in client-go, the command is found on our PATH, not on a PATH that `env` may give the plugin.
        if (program := shutil.which(described.command)) is None:
            hint = f"; {one_line(described.install_hint)}" if described.install_hint else ""
            raise PluginFailed(f"exec: executable {described.command} not found{hint}")
        wants: dict[str, Any] = {"interactive": interactive}
        if self._cluster is not None:
            wants["cluster"] = self._cluster
        asked = {"apiVersion": described.api_version, "kind": _KIND, "spec": wants}
        own = {one.name: one.value for one in described.env}
        env = os.environ | own | {"KUBERNETES_EXEC_INFO": json.dumps(asked)}
        code, said, complained = await _ran([program, *described.args], env, interactive=interactive)
        if code != 0:
            why = one_line(complained.decode(errors="replace"))
            raise PluginFailed(f"exec: executable {described.command} returned {code}{why and f'. {why}'}")
        return self._status(said)

    def _interactive(self) -> bool:
        """Whether the plugin may prompt its user."""
        # sys.stdin is None in a program started without standard input.
        mode, terminal = self._described.interactive_mode, sys.stdin is not None and sys.stdin.isatty()
        if mode == "Always" and not terminal:
            message = "exec: interactiveMode is Always, and standard input is not a terminal; run this in a terminal"
            raise PluginFailed(message)
        return terminal and mode != "Never"

    def _status(self, said: bytes) -> ExecCredentialStatus:
        try:
            answer = msgspec.json.decode(said, type=_Answer)
        except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
            raise PluginFailed(f"exec: failed to decode process output: {error}") from error
        if answer.kind != _KIND:
            message = f"exec: the plugin returned the kind {one_line(answer.kind) or '(none)'}; expected {_KIND}"
            raise PluginFailed(message)
        if answer.api_version != self._described.api_version:
            returned = one_line(answer.api_version) or "(none)"
            raise PluginFailed(f"exec: plugin api version {returned} does not match {self._described.api_version}")
        status = answer.status or ExecCredentialStatus()
        if bool(status.client_certificate_data) != bool(status.client_key_data):
            raise PluginFailed("exec: the plugin returned only one of client certificate and key; expected both")
        if not status.token and not status.client_certificate_data:
            message = "exec: the credential plugin returned neither a token nor a client certificate with its key"
            raise PluginFailed(message)
        return status


class _Running(asyncio.SubprocessProtocol):
    """A running plugin. written: by descriptor. exited: the process has exited. done: its pipes are closed, too.

    done fails if too much was written.
    """

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self.written = {_STDOUT: bytearray(), _STDERR: bytearray()}
        self.exited = asyncio.Event()
        self.done: asyncio.Future[None] = loop.create_future()

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        """Collect a part of its output."""
        self.written[fd] += data
        if len(self.written[fd]) > _MOST_BYTES and not self.done.done():
            message = f"exec: the plugin wrote over {_MOST_BYTES} bytes"
            self.done.set_exception(PluginFailed(message))

    def process_exited(self) -> None:
        """Record the exit; output may still follow."""
        self.exited.set()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - as asyncio's
        """Record that all output has arrived."""
        if not self.done.done():
            self.done.set_result(None)


async def _ran(args: list[str], env: dict[str, str], *, interactive: bool) -> tuple[int, bytes, bytes]:
    """Return (exit status, standard output, standard error). interactive: send standard error to the user instead."""
    # In its own session the plugin has no terminal, and can be killed with its children.
    alone = not interactive
    starting = asyncio.get_running_loop().subprocess_exec(
        _Running,
        *args,
        env=env,
        stdin=None if interactive else asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=None if interactive else asyncio.subprocess.PIPE,
        start_new_session=alone,
    )
    started = asyncio.ensure_future(starting)
    try:
        transport, running = await asyncio.shield(started)
        await running.done
    except BaseException:
        # Needed even if the caller left during the start: asyncio would kill the plugin, but not its children.
        transport, running = await started
        await _end(transport, running, alone=alone)
        raise
    finally:
        if started.done() and not started.cancelled() and started.exception() is None:
            started.result()[0].close()
    code = transport.get_returncode()
    assert code is not None  # noqa: S101 - it has exited
    return code, bytes(running.written[_STDOUT]), bytes(running.written[_STDERR])


async def _end(transport: asyncio.SubprocessTransport, running: _Running, *, alone: bool) -> None:
    with contextlib.suppress(ProcessLookupError):
        if alone:
            os.killpg(transport.get_pid(), signal.SIGKILL)
        else:
            transport.kill()
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_ENDS_WITHIN_S):
            await running.exited.wait()
