"""Runs the credential plugin of a kubeconfig (`exec`): asked as the library asks, and ended when nobody waits any more.

    started ──exits, its pipes closed──▶ answered
       └── cancelled, or more is written than any answer has ──▶ killed, with what it has started

The library leaves a plugin that hangs where it is, one more with each try, and never hears one that writes more to
stderr than a pipe holds.
Source of the protocol: kubernetes.io/docs/reference/access-authn-authz/authentication, "client-go credential plugins".
"""

import asyncio
import contextlib
import json
import os
import signal
import sys
from typing import Any, Final

from kubernetes.aio.config import ConfigException
from kubernetes.aio.config.exec_provider import ExecProvider
from kubernetes.aio.config.kube_config import ConfigNode

from scheduler.kube.rest.failures import one_line

_STDOUT: Final = 1
_STDERR: Final = 2
# Of each of the two. A certificate and its key have thousands.
_MOST_BYTES: Final = 2**20
# One that is killed ends at once, unless the kernel does not let it go.
_ENDS_WITHIN_S: Final = 1.0
_FIELDS: Final = ("apiVersion", "kind", "status")


class CredentialPlugin(ExecProvider):
    """One plugin, as a kubeconfig describes it; the library reads the description."""

    api_version: str
    args: list[str]
    env: dict[str, str]

    def __init__(self, description: ConfigNode) -> None:
        """Raise ConfigException where something is missing."""
        super().__init__(description)  # type: ignore[no-untyped-call]

    async def run(self, previous_response: object = None) -> dict[str, Any]:  # noqa: ARG002 - as the library's
        """Return the `status` of its ExecCredential. Raises ConfigException, OSError where it cannot be started."""
        wants = {"interactive": sys.stdout.isatty()}
        asked = {"apiVersion": self.api_version, "kind": "ExecCredential", "spec": wants}
        code, said, complained = await _ran(self.args, self.env | {"KUBERNETES_EXEC_INFO": json.dumps(asked)})
        if code != 0:
            why = one_line(complained.decode(errors="replace"))
            message = f"exec: process returned {code}{why and f'. {why}'}"
            raise ConfigException(message)
        return self._status(said)

    def _status(self, said: bytes) -> dict[str, Any]:
        try:
            answer = json.loads(said)
        except ValueError as error:
            message = f"exec: failed to decode process output: {error}"
            raise ConfigException(message) from error
        for field in _FIELDS:
            if field not in answer:
                message = f"exec: malformed response. missing key '{field}'"
                raise ConfigException(message)
        if answer["apiVersion"] != self.api_version:
            message = f"exec: plugin api version {answer['apiVersion']} does not match {self.api_version}"
            raise ConfigException(message)
        status: dict[str, Any] = answer["status"]
        return status


class _Running(asyncio.SubprocessProtocol):
    """written: by descriptor. exited: the process has; done: and nobody writes any more, or too much was written."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self.written = {_STDOUT: bytearray(), _STDERR: bytearray()}
        self.exited = asyncio.Event()
        self.done: asyncio.Future[None] = loop.create_future()

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        """Part of its output."""
        self.written[fd] += data
        if len(self.written[fd]) > _MOST_BYTES and not self.done.done():
            message = f"exec: the plugin wrote over {_MOST_BYTES} bytes"
            self.done.set_exception(ConfigException(message))

    def process_exited(self) -> None:
        """It has ended; what it has written may be on its way."""
        self.exited.set()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - as asyncio's
        """It has ended, and all that it has written is here."""
        if not self.done.done():
            self.done.set_result(None)


async def _ran(args: list[str], env: dict[str, str]) -> tuple[int, bytes, bytes]:
    """Exit status, output, complaints."""
    # With a terminal it may ask its user, which a program in a session of its own cannot.
    alone = not sys.stdin.isatty()
    starting = asyncio.get_running_loop().subprocess_exec(
        _Running,
        *args,
        env=env,
        stdin=None,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=alone,
    )
    started = asyncio.ensure_future(starting)
    try:
        transport, running = await asyncio.shield(started)
        await running.done
    except BaseException:
        # Also where whoever waited has left while it started: asyncio would end the plugin, and not its children.
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
