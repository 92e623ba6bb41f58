"""The commands: where a configuration comes from, its mistakes, the legacy plugin's lines, asking for the status."""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pytest
from typer.testing import CliRunner, Result

from config.settings.deviceplugin import DevicePluginConfiguration
from config.settings.mistakes import ConfigurationError
from deviceplugin import line_socket
from deviceplugin.cli import cli, configured, local_address
from deviceplugin.legacy_flags import as_ours
from tests.support.repository import ROOT

HEAD: Final = "apiVersion: gpushare/v1alpha1\nkind: DevicePluginConfiguration\n"


def invoked(*arguments: str, **environment: str) -> Result:
    return CliRunner().invoke(cli, arguments, env={"NODE_NAME": "n", **environment})


def read(
    environ: Mapping[str, str] = {},
    flags: Mapping[str, object] = {},
    *,
    file: Path | None = None,
    memory_unit: str | None = None,
) -> DevicePluginConfiguration:
    return configured(file, environ, flags, memory_unit)


def test_the_node_is_that_of_node_name() -> None:
    assert read({"NODE_NAME": "node-1"}).node_name == "node-1"


@pytest.mark.parametrize(
    ("environ", "flags", "name"),
    [
        pytest.param({"NODE_NAME": "b"}, {}, "b", id="the environment over the file"),
        pytest.param({"NODE_NAME": "b", "GPUSHARE_DEVICE_PLUGIN_NODENAME": "c"}, {}, "c", id="our own variable"),
        pytest.param({"NODE_NAME": "b"}, {"nodeName": "d"}, "d", id="a flag over all"),
        pytest.param({"NODE_NAME": ""}, {}, "a", id="an empty variable says nothing"),
    ],
)
def test_node_name_counts_as_environment(
    tmp_path: Path, environ: dict[str, str], flags: dict[str, object], name: str
) -> None:
    file = tmp_path / "node.yaml"
    file.write_text(f"{HEAD}nodeName: a\n", encoding="utf-8")
    assert read(environ, flags, file=file).node_name == name


@pytest.mark.parametrize(("unit", "mib"), [("GiB", 1024), ("MiB", 1), ("128MiB", 128), ("2GiB", 2048)])
def test_a_memory_unit_is_a_word(unit: str, mib: int) -> None:
    assert read({"NODE_NAME": "n"}, memory_unit=unit).memory_unit_mib == mib


def test_without_a_flag_the_files_memory_unit_holds(tmp_path: Path) -> None:
    file = tmp_path / "node.yaml"
    file.write_text(f"{HEAD}memoryUnitMiB: 256\n", encoding="utf-8")
    assert read({"NODE_NAME": "n"}, file=file).memory_unit_mib == 256


@pytest.mark.parametrize("word", ["true", "1", "T", "TRUE", "false", "0", "f", "False"])
def test_the_health_check_takes_what_go_takes_for_a_boolean(word: str) -> None:
    assert read({"NODE_NAME": "n"}, {"healthCheck": word}).health_check is (word.lower() in {"true", "1", "t"})


def test_a_mistake_names_the_source_that_its_author_wrote() -> None:
    with pytest.raises(ConfigurationError) as caught:
        read({"NODE_NAME": "Node_1"}, memory_unit="9999999999GiB")
    assert [mistake.source for mistake in caught.value.mistakes] == ["environment NODE_NAME", "flag --memory-unit"]


EVERY_MISTAKE: Final = """\
flag --memory-unit: memoryUnitMiB: expected GiB, MiB, or a multiple such as 128MiB, found 'QiB'
flag --node-name: nodeName: expected the name of a node, as in `kubectl get nodes`, found 'N'
flag --listen: listen: expected host:port such as 0.0.0.0:10262 or [::1]:10262, found '10262'
flag --log-level: logLevel: expected 'debug', 'info', 'warning' or 'error', found 'loud'
flag --mode: mode: expected 'auto', 'cdi' or 'environment', found 'csi'; did you mean cdi?
flag --cdi-dir: cdiDir: expected an absolute path, found 'cdi'
flag --simulate-control: simulateControl: expected simulate to be set: faults apply to simulated cards only
flag --health-check: healthCheck: expected a valid boolean, unable to interpret input, found 'perhaps'
flag --isolation: isolation: expected auto, driver, none, mps, hami-core, or an absolute path, found 'mig'
"""


def test_every_mistake_on_the_command_line_is_reported_with_exit_code_2() -> None:
    line = "--memory-unit QiB --node-name N --listen 10262 --log-level loud --mode csi --cdi-dir cdi "
    result = invoked("run", *(line + "--simulate-control /s --health-check perhaps --isolation mig").split())
    assert (result.exit_code, result.stderr) == (2, EVERY_MISTAKE)


def test_without_a_node_name_it_says_how_to_give_one() -> None:
    result = invoked("run", NODE_NAME="")
    message = "configuration: nodeName: is missing; name this node with --node-name or NODE_NAME"
    assert (result.exit_code, result.stderr) == (2, f"gpushare-device-plugin: {message}\n")


def test_it_starts_without_a_command_as_the_legacy_plugin_does() -> None:
    command = [sys.executable, "-m", "deviceplugin.cli", "-logtostderr", "--v=5", "--mps=false", "--health-check=maybe"]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GPUSHARE_")}
    ended = subprocess.run(
        command, cwd=ROOT, env=environment | {"NODE_NAME": "n"}, capture_output=True, text=True, check=False, timeout=60
    )
    # Of all these flags the last alone is wrong; it was read as `run` reads it.
    assert ended.returncode == 2
    assert ended.stderr.startswith("gpushare-device-plugin: flag --health-check: healthCheck: expected a valid boolean")


@pytest.mark.parametrize(
    ("environ", "address"),
    [
        ({}, "127.0.0.1:10262"),
        ({"GPUSHARE_DEVICE_PLUGIN_LISTEN": "0.0.0.0:9000"}, "127.0.0.1:9000"),
        ({"GPUSHARE_DEVICE_PLUGIN_LISTEN": "nonsense"}, "127.0.0.1:10262"),
    ],
)
def test_the_status_is_asked_where_the_plugin_of_this_environment_listens(
    environ: dict[str, str], address: str
) -> None:
    assert local_address(environ) == address


def test_a_plugin_that_does_not_run_is_reported_with_exit_code_1() -> None:
    result = invoked("status", "--address", "127.0.0.1:1")
    assert result.exit_code == 1
    assert "http://127.0.0.1:1/status" in result.stderr
    assert "is the plugin running here?" in result.stderr


async def test_release_is_asked_of_the_plugin_on_this_node(tmp_path: Path) -> None:
    asked: list[object] = []

    async def obey(line: bytes) -> str:
        asked.append(json.loads(line))
        return "card 0 (GPU-a) is released until 12:00:00 UTC and takes no new pods"

    line = ("release", "0", "GPU-b", "--for", "5", "--state-dir", str(tmp_path))
    async with line_socket.serve(tmp_path / "control.sock", obey):
        result = await asyncio.to_thread(invoked, *line)
        done = await asyncio.to_thread(invoked, *line, "--done")
    assert (result.exit_code, done.exit_code) == (0, 0)
    assert result.stdout == "card 0 (GPU-a) is released until 12:00:00 UTC and takes no new pods\n"
    assert asked == [{"cards": ["0", "GPU-b"], "forS": 300.0}, {"cards": ["0", "GPU-b"], "done": True, "forS": 300.0}]


def test_release_without_a_plugin_says_so(tmp_path: Path) -> None:
    result = invoked("release", "0", "--state-dir", str(tmp_path))
    assert result.exit_code == 1
    assert "No such file or directory" in result.stderr
    assert "is the plugin running here?" in result.stderr


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        ("--card 0 --xid 79", {"card": "0", "xid": 79}),
        ("--card GPU-a --lost", {"card": "GPU-a", "lost": True}),
        ("--card 0 --back", {"card": "0", "back": True}),
        ("--card 0 --reset", {"card": "0", "reset": True}),
        ("--card 0 --no-hang", {"card": "0", "hang": False}),
        ("--card 0 --pid 42 --used-mib 0", {"card": "0", "pid": 42, "usedMiB": 0}),
        (
            "--card 0 --reading recovery=reset --reading temperatureC=91 --reading remapPending=true",
            {"card": "0", "reading": {"recovery": "reset", "temperatureC": 91, "remapPending": True}},
        ),
        ("--slow-s 2.5 --hang", {"slowS": 2.5, "hang": True}),
        ("--no-fail", {"fail": False}),
        ("--die", {"die": True}),
    ],
)
async def test_a_fault_is_told_as_the_socket_takes_it(tmp_path: Path, flags: str, told: dict[str, object]) -> None:
    asked: list[object] = []

    async def obey(line: bytes) -> str:
        asked.append(json.loads(line))
        return ""

    async with line_socket.serve(tmp_path / "s", obey):
        result = await asyncio.to_thread(invoked, "fault", "--control", str(tmp_path / "s"), *flags.split())
    assert (result.exit_code, result.output, asked) == (0, "", [told])


@pytest.mark.parametrize(
    ("line", "variable"),
    [
        pytest.param("release 7", "STATEDIR", id="a release"),
        pytest.param("fault --xid 79", "SIMULATECONTROL", id="a fault"),
    ],
)
async def test_an_order_goes_where_the_environment_says_and_a_refusal_is_told(
    tmp_path: Path, line: str, variable: str
) -> None:
    async def refuse(_: bytes) -> str:
        message = "there is no card 7"
        raise line_socket.Refusal(message)

    socket = tmp_path / "control.sock"
    listening = {f"GPUSHARE_DEVICE_PLUGIN_{variable}": str(tmp_path if variable == "STATEDIR" else socket)}
    async with line_socket.serve(socket, refuse):
        result = await asyncio.to_thread(invoked, *line.split(), **listening)
    assert (result.exit_code, result.stderr) == (1, "gpushare-device-plugin: there is no card 7\n")


@pytest.mark.parametrize(
    ("flags", "code", "message"),
    [
        ("--die", 2, "expected --control: the socket that the plugin was given as --simulate-control"),
        ("--control /nowhere/s --card 0 --reading hot", 2, "expected --reading NAME=VALUE, found 'hot'"),
        ("--control /nowhere/s --die", 1, "is a plugin running here with --simulate-control?"),
    ],
)
def test_a_fault_that_reaches_nobody_says_why(flags: str, code: int, message: str) -> None:
    result = invoked("fault", *flags.split())
    assert result.exit_code == code
    assert message in result.stderr


@pytest.mark.parametrize(
    ("text", "environment", "mistake"),
    [
        pytest.param("", {}, "", id="for all nodes"),
        pytest.param("nodeName: a", {}, "", id="for one node"),
        pytest.param("memoryUnitMiB: 1", {"NODE_NAME": "n"}, "", id="the smallest unit"),
        pytest.param("new: 1", {}, "new: unknown field", id="a mistake, and no node"),
        pytest.param("memoryUnitMiB: 0", {"NODE_NAME": "n"}, "memoryUnitMiB: expected at least 1", id="a unit"),
        pytest.param("simulate: /nowhere", {}, "/nowhere: cannot be read", id="a missing cluster file"),
        pytest.param("simulate: {cluster}", {}, "", id="a cluster file for all its nodes"),
        pytest.param("simulate: {cluster}", {"NODE_NAME": "other"}, "other", id="a cluster file without the node"),
    ],
)
def test_check_config_accepts_what_run_accepts(
    tmp_path: Path, text: str, environment: dict[str, str], mistake: str
) -> None:
    cluster, file = tmp_path / "cluster.yaml", tmp_path / "node.yaml"
    cluster.write_text("nodes: [{name: a, cards: [{model: M, memoryMiB: 1024}]}]", encoding="utf-8")
    file.write_text(HEAD + text.replace("{cluster}", str(cluster)), encoding="utf-8")

    ran = CliRunner().invoke(cli, ["check-config", str(file)], env={"NODE_NAME": None, **environment})

    valid = f"{file} is valid: gpushare-device-plugin run accepts it\n"
    assert (ran.exit_code, ran.stdout) == ((2, "") if mistake else (0, valid))
    assert mistake in ran.stderr
    assert "nodeName: is missing" not in ran.stderr


@pytest.mark.parametrize(
    ("given", "ours", "ignored"),
    [
        pytest.param("", "run", "", id="nothing"),
        pytest.param(
            "-logtostderr --v=5 --memory-unit=GiB", "run --memory-unit=GiB", "--logtostderr --v", id="manifest"
        ),
        pytest.param(
            "--memory-unit=MiB --health-check=true", "run --memory-unit=MiB --health-check=true", "", id="equals signs"
        ),
        pytest.param("-memory-unit MiB -health-check", "run --memory-unit MiB --health-check=true", "", id="one dash"),
        pytest.param("--health-check=false", "run --health-check=false", "", id="no health check"),
        pytest.param("--mps=false --mps --mps=true", "run", "--mps", id="a flag three times"),
        pytest.param(
            "--query-kubelet --kubelet-address 10.0.0.1 --kubelet-port=10250 --timeout 10 --mode cdi",
            "run --mode cdi",
            "--query-kubelet --kubelet-address --kubelet-port --timeout",
            id="asking the kubelet",
        ),
        pytest.param(
            "--client-cert=/c --client-key /k --token", "run", "--client-cert --client-key --token", id="no value left"
        ),
        pytest.param("--mps-pipe=/var/run/nvidia-mps --mps=true", "run", "--mps-pipe --mps", id="MPS"),
        pytest.param("run --mps=false --listen :0", "run --listen :0", "--mps", id="with the command"),
        pytest.param("status --timeout 3", "status --timeout 3", "", id="another command"),
        pytest.param("--help", "--help", "", id="help"),
        pytest.param("--version", "--version", "", id="version"),
        pytest.param("--config --mps", "run --config", "--mps", id="a flag is no value"),
        pytest.param("--mps-pip=x", "run --mps-pip=x", "", id="a misspelt flag stays a mistake"),
    ],
)
def test_a_command_line_of_the_legacy_plugin_becomes_ours(given: str, ours: str, ignored: str) -> None:
    line = as_ours(given.split())
    assert (line.arguments, list(line.ignored)) == (ours.split(), ignored.split())


def test_no_value_of_an_ignored_flag_is_repeated() -> None:
    line = as_ours(["--token=secret", "--client-key", "secret"])
    assert "secret" not in " ".join([*line.arguments, *line.ignored])
