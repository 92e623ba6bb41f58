"""What a shell offers after `kubectl gpushare`."""

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from scheduler.tools.kubectl.completion import candidates, script
from scheduler.tools.kubectl.main import cli
from tests.support.builders import wire_node
from tests.support.repository import ROOT
from tests.support.servers.listing_server import listing

GROUP: Any = get_command(cli)
COMMANDS = set(GROUP.commands)


def words(*typed: str) -> set[str]:
    return {word for word, _ in candidates(GROUP, typed)[0]}


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        pytest.param([], COMMANDS | {"--help", "--version"}, id="nothing"),
        pytest.param([""], COMMANDS | {"--help", "--version"}, id="a blank"),
        pytest.param(["co"], {"cordon", "completion"}, id="the beginning of a command"),
        pytest.param(["top", ""], {"cluster", "nodes", "cards", "pods", "--help"}, id="a command of a group"),
        pytest.param(["top", "c"], {"cluster", "cards"}, id="the beginning of one"),
        pytest.param(["ge"], {"get"}, id="another word for a command"),
        pytest.param(["get", "p"], {"pods"}, id="a command after that word"),
        pytest.param(["top", "--so"], {"--sort-by"}, id="a flag of a group's default"),
        pytest.param(["top", "--sort-by", "m"], {"most-free"}, id="the value of a flag"),
        pytest.param(["top", "pods", "--sort-by", ""], {"name", "requested", "used"}, id="of a command of a group"),
        pytest.param(["get", "po", "--sort-by", ""], {"name", "requested", "used"}, id="of an alias"),
        pytest.param(["--context", "c", "top", "pods", "-o", "y"], {"yaml"}, id="after a flag in front"),
        pytest.param(["top", "-o", ""], {"wide", "json", "yaml", "name"}, id="of a short flag"),
        pytest.param(
            ["cordon", "a", "--c"],
            {
                "--card",
                "--context",
                "--cluster",
                "--certificate-authority",
                "--client-certificate",
                "--client-key",
                "--config",
            },
            id="flags",
        ),
        pytest.param(["defragment", "a"], {"apply"}, id="a verb"),
        pytest.param(["completion", ""], {"bash", "zsh", "fish"}, id="shells"),
        pytest.param(["none", ""], set(), id="no command of ours"),
    ],
)
def test_what_may_follow(typed: list[str], offered: set[str]) -> None:
    assert words(*typed) == offered


def test_files_are_meant_after_flags_that_take_one() -> None:
    assert candidates(GROUP, ["what-if", "-f", ""])[1] == 0
    assert candidates(GROUP, ["what-if", "--config", ""])[1] == 0
    assert candidates(GROUP, ["explain", "p", "--cluster-file", ""])[1] == 0
    assert candidates(GROUP, ["defragment", "plan", "-f", ""])[1] == 0
    assert candidates(GROUP, ["top", ""])[1] == 4


def test_nodes_with_cards_are_offered_where_a_node_is_meant(tmp_path: Path) -> None:
    with listing([wire_node("gpu-b", [16]), wire_node("cpu"), wire_node("gpu-a", [16])]) as server:
        file = server.kubeconfig(tmp_path)
        assert words("cordon", "--kubeconfig", file, "") == {"gpu-a", "gpu-b"}
        assert words("top", "cards", "--kubeconfig", file, "") == {"gpu-a", "gpu-b"}
        assert words("explain", "p", "--kubeconfig", file, "--node", "gpu-b") == {"gpu-b"}
        assert words("cordon", "gpu-b", "--kubeconfig", file, "--card", "") == {"0"}
        assert words("cordon", "--kubeconfig", file, "node/gpu-b", "--card", "G") == {"GPU-gpu-b-0"}
        assert {method for method, _ in server.requests} == {"GET"}
    assert words("cordon", "--kubeconfig", file, "") == set()
    assert words("cordon", "--kubeconfig", str(tmp_path / "none"), "") == set()


def complete(*typed: str) -> subprocess.CompletedProcess[str]:
    program = "from scheduler.tools.kubectl.main import completing; completing()"
    command = [sys.executable, "-c", program, *typed]
    environment = {"PYTHONPATH": str(ROOT), "PATH": os.environ["PATH"]}
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=True)


def test_kubectl_gets_a_word_a_line_and_a_directive() -> None:
    lines = complete("unc").stdout.splitlines()
    assert lines[0].startswith("uncordon\t")
    assert lines[1:] == [":4"]


@pytest.fixture
def programs(tmp_path: Path) -> str:
    """A PATH that has what the scripts ask."""
    asked = tmp_path / "kubectl-gpushare"
    asked.write_text(
        f"#!/bin/sh\nPYTHONPATH={shlex.quote(str(ROOT))} exec {shlex.quote(sys.executable)} -c "
        "'from scheduler.tools.kubectl.main import main; main()' \"$@\"\n"
    )
    asked.chmod(0o700)
    return f"{tmp_path}:{os.environ['PATH']}"


def test_bash_offers_them_after_kubectl_too_and_leaves_the_rest_to_kubectl(programs: str) -> None:
    bash = shutil.which("bash")
    assert bash is not None
    tried = f"""__start_kubectl() {{ COMPREPLY=(of-kubectl); }}
{script("bash")}
COMP_WORDS=(kubectl gpushare top pods --sort-by '') COMP_CWORD=5; _kubectl_with_gpushare kubectl '' --sort-by
echo "${{COMPREPLY[@]}}"
COMP_WORDS=(kubectl get '') COMP_CWORD=2; _kubectl_with_gpushare kubectl '' get
echo "${{COMPREPLY[@]}}"
complete -p kubectl
"""
    ran = subprocess.run(
        [bash, "--norc", "-c", tried], env={"PATH": programs}, capture_output=True, text=True, timeout=60, check=True
    )
    assert ran.stdout.splitlines() == [
        "name requested used",
        "of-kubectl",
        "complete -o default -F _kubectl_with_gpushare kubectl",
    ]


@pytest.mark.skipif(shutil.which("fish") is None, reason="this machine has no fish")
def test_fish_offers_them_and_files_where_one_is_meant(programs: str, tmp_path: Path) -> None:
    folder = tmp_path / "home"
    folder.mkdir()
    (folder / "pod.yaml").touch()
    tried = (
        f"{script('fish')}\ncomplete -C 'kubectl-gpushare top nodes --sort-by '\ncomplete -C 'kubectl-gpushare unc'\n"
        "complete -C 'kubectl-gpushare what-if -f '\n"
    )
    ran = subprocess.run(
        ["fish", "--no-config", "-c", tried],
        env={"PATH": programs, "HOME": str(folder)},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    offered = [line.partition("\t")[0] for line in ran.stdout.splitlines()]
    words = {"name", "free", "requested", "most-free", "pods", "fragmented"}
    assert (set(offered[:6]), offered[6:]) == (words, ["uncordon", "pod.yaml"]), ran.stderr
