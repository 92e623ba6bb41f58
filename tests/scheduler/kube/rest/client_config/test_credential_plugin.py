"""A credential plugin is a program of somebody else's: it may hang, talk without end, or leave others behind."""

import asyncio
import contextlib
import json
import os
import signal
from pathlib import Path
from typing import Final

import msgspec
import pytest

from scheduler.kube.rest.client_config import credential_plugin
from scheduler.kube.rest.client_config.credential_plugin import CredentialPlugin, ExecCredentialStatus, PluginFailed
from scheduler.kube.rest.client_config.kubeconfig_file import Exec
from tests.support.servers.byte_server import until

VERSION: Final = "client.authentication.k8s.io/v1"
ANSWER: Final = f'{{"apiVersion": "{VERSION}", "kind": "ExecCredential", "status": {{"token": "$TOKEN"}}}}'
ANSWERS: Final = f"cat <<EOF\n{ANSWER}\nEOF"
SAID: Final = ExecCredentialStatus(token="secret")  # noqa: S106 - of a test


def plugin(script: str, **more: object) -> CredentialPlugin:
    config = {"apiVersion": VERSION, "command": "sh", "args": ["-c", script], "interactiveMode": "Never", **more}
    return CredentialPlugin(msgspec.convert(config, Exec))


def ended(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return True
    # Whoever adopts what a plugin leaves may be late to reap it.
    return state == "Z"


def pipes() -> set[str]:
    """Those of this process."""
    found = set()
    for file in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            found.add(str(file.readlink()))
    return {one for one in found if one.startswith(("pipe:", "socket:"))}


async def test_it_is_given_its_environment_and_answers_a_status() -> None:
    env = [{"name": "TOKEN", "value": "secret"}]

    assert await plugin(ANSWERS, env=env).run() == SAID


async def test_it_is_told_what_is_wanted(tmp_path: Path) -> None:
    says = f"printf '%s' \"$KUBERNETES_EXEC_INFO\" > {tmp_path}/asked; TOKEN=t; {ANSWERS}"

    await plugin(says).run()

    asked = json.loads((tmp_path / "asked").read_text(encoding="utf-8"))
    assert asked == {"apiVersion": VERSION, "kind": "ExecCredential", "spec": {"interactive": False}}


async def given_up(script: str, written: Path) -> None:
    """Run a script until it has written a file."""
    running = asyncio.create_task(plugin(script).run())
    await until(written.exists)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running


@pytest.mark.parametrize(
    "script",
    [
        pytest.param("sleep 600 & echo $$ $! > {pids}.new; mv {pids}.new {pids}; wait", id="one that hangs"),
        pytest.param("sleep 600 & echo $! > {pids}.new; mv {pids}.new {pids}", id="one that has exited"),
    ],
)
async def test_it_is_ended_with_what_it_has_started(tmp_path: Path, script: str) -> None:
    pids = tmp_path / "pids"

    await given_up(script.format(pids=pids), pids)

    await until(lambda: all(map(ended, map(int, pids.read_text(encoding="utf-8").split()))))


async def test_its_pipes_are_closed_where_another_program_keeps_them(tmp_path: Path) -> None:
    keeper = tmp_path / "keeper"
    await plugin(f"TOKEN=t; {ANSWERS}").run()  # what the event loop keeps for all of them
    before = pipes()
    script = f"setsid sh -c 'echo $$ > {keeper}.new; mv {keeper}.new {keeper}; exec sleep 600' &"
    await given_up(script, keeper)

    try:
        await until(lambda: pipes() <= before)
    finally:
        os.kill(int(keeper.read_text(encoding="utf-8")), signal.SIGKILL)


async def test_one_that_complains_at_length_is_heard() -> None:
    complains = "head -c 200000 /dev/zero | tr '\\0' x >&2"

    async with asyncio.timeout(10):
        status = await plugin(f"{complains}; TOKEN=secret; {ANSWERS}").run()

    assert status == SAID


async def test_one_that_talks_without_end_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(credential_plugin, "_MOST_BYTES", 100_000)

    async with asyncio.timeout(10):
        with pytest.raises(PluginFailed, match=r"^exec: the plugin wrote over 100000 bytes$"):
            await plugin("while true; do echo xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx; done").run()


def echo(**answer: object) -> str:
    return f"echo '{json.dumps(answer)}'"


@pytest.mark.parametrize(
    ("script", "message"),
    [
        pytest.param(
            "echo your login >&2; echo has expired >&2; exit 3", "returned 3. your login has expired", id="why"
        ),
        pytest.param("exit 3", "returned 3$", id="without a word"),
        pytest.param("echo secret", "^exec: failed to decode process output: (?!.*secret)", id="no JSON"),
        pytest.param("echo []", "^exec: failed to decode process output: Expected `object`", id="no object"),
        pytest.param(echo(apiVersion="v0"), r"the kind \(none\); expected ExecCredential$", id="half of it"),
        pytest.param(
            echo(apiVersion="v0", kind="ExecCredential", status={}), f"v0 does not match {VERSION}$", id="a version"
        ),
        pytest.param(
            echo(apiVersion=VERSION, kind="ExecCredential", status={"clientKeyData": "x"}),
            "only one of client certificate and key; expected both$",
            id="half a pair",
        ),
        pytest.param(
            echo(apiVersion=VERSION, kind="ExecCredential"), "returned neither a token nor a client", id="no status"
        ),
        pytest.param(
            echo(apiVersion=VERSION, kind="ExecCredential", status={}), "returned neither a token", id="an empty status"
        ),
    ],
)
async def test_what_is_no_answer_is_told(script: str, message: str) -> None:
    with pytest.raises(PluginFailed, match=message):
        await plugin(script).run()
