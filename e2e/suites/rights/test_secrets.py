"""What the programs say, as processes of their own at their most talkative: nothing of it holds a planted secret."""

import asyncio
import base64
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pytest

from e2e.control_plane import commands
from e2e.control_plane.cluster import ControlPlane
from e2e.programs.scheduler_process import NO_PREDECESSOR, SchedulerProcess, environment
from e2e.support import planted_secrets
from e2e.support.planted_secrets import hits, secret

MISCONFIGURED: Final = 2
DEBUG: Final[Mapping[str, Any]] = {**NO_PREDECESSOR, "logLevel": "debug"}
NOWHERE: Final = "https://127.0.0.1:1"
_AT_ONCE: Final = 2
_ENDS_WITHIN_S: Final = 60.0


def kubeconfig(user: object, server: str = NOWHERE, **cluster: str) -> str:
    """A kubeconfig, as text."""
    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "c", "cluster": {"server": server, **cluster}}],
            "users": [user],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
            "current-context": "c",
        },
        indent=1,
    )


def of_user(**fields: object) -> object:
    return {"name": "u", "user": fields}


TOKEN: Final = of_user(token=secret("token"))
NO_PEM: Final = base64.b64encode(f"-----BEGIN PRIVATE KEY-----\n{secret('key')}\n".encode()).decode()
# By the name of the file.
KUBECONFIGS: Final[Mapping[str, str]] = {
    "not-yaml": f"users:\n- name: u\n  user:\n    token: '{secret('token')}\n",
    "no-such-anchor": f"users:\n- name: u\n  user:\n    token: *{secret('token')}\n",
    "no-name": kubeconfig({"user": {"token": secret("token")}}),
    "of-two-lines": kubeconfig(of_user(token=f"{secret('token')}\nx")),
    "no-pem": kubeconfig(of_user(**{"client-certificate-data": NO_PEM, "client-key-data": NO_PEM})),
    "user-in-address": kubeconfig(TOKEN, f"https://u:{secret('password')}@127.0.0.1:1"),
    "no-proxy": kubeconfig(TOKEN, **{"proxy-url": f"socks5://u:{secret('proxy')}@127.0.0.1:1"}),
    "plugin-fails": kubeconfig(
        of_user(
            exec={
                "apiVersion": "client.authentication.k8s.io/v1",
                "command": "false",
                "args": ["--token", secret("args")],
                "interactiveMode": "Never",
                "env": [{"name": "TOKEN", "value": secret("env")}],
            }
        )
    ),
    "provider": kubeconfig(of_user(**{"auth-provider": {"name": "oidc", "config": {"id-token": secret("token")}}})),
}
HEAD: Final = "apiVersion: gpushare/v1alpha1\nkind: {}\n"
# Instead of the program's own file.
CONFIGURATIONS: Final[Mapping[str, str]] = {
    "a-kubeconfig": kubeconfig(TOKEN),
    "a-kubeconfig-that-is-no-yaml": KUBECONFIGS["not-yaml"],
    "a-kubeconfig-inside": f"{HEAD}clientConnection: {{kubeconfig: {{users: [{{token: {secret('token')}}}]}}}}\n",
    "credentials-in-a-list": f"{HEAD}clientConnection: [{secret('token')}]\n",
}
PROGRAMS: Final[Mapping[str, tuple[str, str, list[str]]]] = {
    "scheduler": ("scheduler.main", "SchedulerConfiguration", []),
    "device plugin": ("deviceplugin.main", "DevicePluginConfiguration", ["--node-name", "n"]),
}
# It reads them by the same code.
OF_THE_PLUGIN: Final = frozenset({"no-such-anchor", "no-pem", "no-proxy", "a-kubeconfig", "a-kubeconfig-inside"})


async def said_by(folder: Path, module: str, *arguments: str) -> tuple[int, str]:
    """Exit code, and all that the program wrote until it ended."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", module, *arguments),
        env=environment(folder) | {"GPUSHARE_SCHEDULER_TOKEN": secret("variable")},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        written, _ = await asyncio.wait_for(process.communicate(), _ENDS_WITHIN_S)
    finally:
        if process.returncode is None:
            process.kill()
    assert process.returncode is not None
    return process.returncode, written.decode()


@pytest.mark.parametrize("program", PROGRAMS)
async def test_a_start_that_fails_tells_no_secret(program: str, tmp_path: Path) -> None:
    module, kind, own = PROGRAMS[program]
    turn, said, codes = asyncio.Semaphore(_AT_ONCE), {}, {}

    async def start(flag: str, name: str, text: str) -> None:
        file = tmp_path / name
        file.write_text(text.replace("{}", kind, 1), encoding="utf-8")
        async with turn:
            codes[name], said[name] = await said_by(tmp_path, module, "run", flag, str(file), *own)

    async with asyncio.TaskGroup() as tasks:
        for flag, files in (("--kubeconfig", KUBECONFIGS), ("--config", CONFIGURATIONS)):
            for name, text in files.items():
                if program == "scheduler" or name in OF_THE_PLUGIN:
                    tasks.create_task(start(flag, name, text))

    assert hits(said, {}) == []
    assert set(codes.values()) == {MISCONFIGURED}, said


async def test_a_token_that_is_refused_is_not_told(control_plane: ControlPlane, tmp_path: Path) -> None:
    file = control_plane.kubeconfig_for(secret("token"), "planted")
    with SchedulerProcess(file, tmp_path, DEBUG) as scheduler:
        await scheduler.said("api.unauthorized")
        pages = {page: await scheduler.page(page) for page in ("/readyz", "/metrics")}
        scheduler.stop()
    _, told = await said_by(tmp_path, "scheduler.main", "explain", "p", "--kubeconfig", str(file))

    said = {"log": scheduler.log.read_text(encoding="utf-8"), "explain": told, **pages}
    assert hits(said, {}) == []
    assert all(said.values()), said


def with_its_key_inside(cluster: ControlPlane, file: Path) -> str:
    """Write a kubeconfig that has certificate and key itself; the key."""
    document = json.loads(cluster.certificate_kubeconfig_path("keyholder", "system:masters").read_text())
    user = document["users"][0]["user"]
    inside = {f"{name}-data": base64.b64encode(Path(path).read_bytes()).decode() for name, path in user.items()}
    document["users"][0]["user"] = inside
    file.write_text(commands.as_yaml(document), encoding="utf-8")
    return Path(user["client-key"]).read_text(encoding="ascii")


async def test_a_key_inside_a_kubeconfig_stays_in_no_file(control_plane: ControlPlane, tmp_path: Path) -> None:
    file, scratch = tmp_path / "kubeconfig", tmp_path / "scratch"
    key = with_its_key_inside(control_plane, file)
    scratch.mkdir()
    scheduler = SchedulerProcess(file, tmp_path, DEBUG)
    scheduler.also_inherits["TMPDIR"] = str(scratch)
    with scheduler:
        await scheduler.ready()
        written = [path for path in scratch.rglob("*") if path.is_file()]
        holding = [path for path in written if key in path.read_text(encoding="utf-8")]
        scheduler.stop()

    said = {"log": scheduler.log.read_text(encoding="utf-8")}
    assert hits(said, {key.splitlines()[1]: "the key"}) == []
    assert holding == []


def test_the_search_finds_what_is_planted() -> None:
    one = planted_secrets.in_pod({"metadata": {}, "spec": {"containers": [{"name": "c"}]}})
    places = {"env", "command", "args", "applied", "annotation"}
    assert all(secret(place) in json.dumps(one) for place in places)
    for before in range(4):
        text = base64.b64encode(b"x" * before + secret("env").encode() + b"tail").decode()
        assert hits({"log": f"a {text} b"}, {}), text
    assert hits({"log": "the word"}, {"word": "of the test"}) == ["log: of the test: 'the word'"]
    assert hits({"log": "nothing"}, {"word": "of the test"}) == []
