"""`make cluster` as a newcomer has it: up, a pod that runs with its card, Ctrl-C, and nothing of it is left."""

import itertools
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pytest

from e2e.control_plane import binaries, cache
from e2e.local_cluster import __main__ as commands
from e2e.local_cluster.cluster import home
from e2e.node import node_programs
from e2e.support.traces import gone, left_of, mount_namespace, settings, shared_folders
from tests.support.repository import ROOT

WITHIN_S = 300


@pytest.fixture
def own_cache(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A cache folder of the test's own, with the user's builds; short, since a socket's path has at most 107 bytes."""
    built = cache.folder()
    with tempfile.TemporaryDirectory(prefix="gpushare-") as folder:
        monkeypatch.setenv("XDG_CACHE_HOME", folder)
        cache.folder().mkdir()
        for name in ("servers", "debian"):
            (built / name).mkdir(parents=True, exist_ok=True)
            (cache.folder() / name).symlink_to(built / name)
        yield cache.folder()


@dataclass
class Up:
    """A cluster in its terminal. said: what it has printed so far. folders: with the mount namespace of each node's."""

    process: "subprocess.Popen[str]"
    said: list[str] = field(default_factory=list)
    folders: dict[Path, str] = field(default_factory=dict)

    def until(self, beginning: str) -> str:
        """Return the next line that begins so."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.said.append(line.strip())
            if self.said[-1].startswith(beginning):
                return self.said[-1]
        pytest.fail("\n".join(self.said))

    def ends(self, how: signal.Signals) -> int:
        """End it; Ctrl-C reaches all of a terminal's processes."""
        os.killpg(self.process.pid, how)
        assert self.process.stdout is not None
        self.said += map(str.strip, self.process.stdout)
        return self.process.wait(WITHIN_S)


@pytest.fixture
def up(own_cache: Path) -> Iterator[Up]:
    del own_cache
    command = ["make", "--no-print-directory", "cluster"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, start_new_session=True) as process:
        ending = threading.Timer(2 * WITHIN_S, os.killpg, (process.pid, signal.SIGKILL))
        ending.start()
        started = Up(process)
        try:
            folders = started.until("Logs: ").removeprefix("Logs: ").split(", ")
            started.folders = {folder: namespace_in(folder) for folder in map(Path, folders)}
            yield started
        finally:
            ending.cancel()
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def exports(said: Iterable[str]) -> str:
    """The line that a user pastes."""
    (line,) = (line.strip() for line in said if line.strip().startswith("export KUBECONFIG="))
    return line


def in_shell(line: str, command: str) -> str:
    """What the command says in a shell into which the line was pasted."""
    answer = subprocess.run(
        ["bash", "-ec", f"{line}\n{command}"], cwd=ROOT, capture_output=True, text=True, timeout=WITHIN_S, check=False
    )
    assert answer.returncode == 0, f"{command}\n{answer.stdout}{answer.stderr}"
    return answer.stdout


def until_top_shows(pattern: str) -> str:
    """A command that waits for such a line of `top`; it fails with the last output when there is none in a minute."""
    once = f'said=$(kubectl gpushare top 2>&1) && grep -E {shlex.quote(pattern)} <<<"$said" && exit'
    return f'for _ in $(seq 300); do {once}; sleep 0.2; done; echo "$said"; exit 1'


# While servers start again, any of these may be refused.
_TRIES: Final = "for _ in $(seq 300); do {0} && exit; sleep 0.2; done; exit 1"
_SECOND_POD: Final = "sed s/first-pod/second-pod/ docs/examples/first-pod.yaml | kubectl apply -f -"
NEW_POD_RUNS: Final = _TRIES.format(f"{_SECOND_POD} && kubectl wait --for=condition=Ready pod/second-pod --timeout=5s")
PROGRAMS: Final = ("etcd", "kube-apiserver", "containerd", "kubelet", "scheduler.main", "deviceplugin.main")


def pids_running(program: str, made: Iterable[Path]) -> list[int]:
    """Processes of the cluster with these folders that run it: a file, or a module of Python."""
    found = []
    for pid in {pid for folder in made for pid in pids_of(folder)}:
        with suppress(FileNotFoundError, ProcessLookupError):
            words = Path(f"/proc/{pid}/cmdline").read_text().split("\0")
            if Path(words[0]).name == program or words[1:3] == ["-m", program]:
                found.append(pid)
    return found


def namespace_in(folder: Path) -> str:
    """The mount namespace of its processes, "" for this one's."""
    found = {namespace_of(pid) for pid in pids_of(folder)} - {mount_namespace(os.getpid()), ""}
    return next(iter(found), "")


def namespace_of(pid: int) -> str:
    """Its mount namespace; "" of a process that has ended since it was found."""
    try:
        return mount_namespace(pid)
    except OSError:
        return ""


def pids_of(folder: Path) -> list[int]:
    """Processes whose command line names the folder."""
    return [int(line.split()[0]) for line in left_of(folder) if line.split()[0].isdigit() and str(folder) in line]


def kept(folder: Path) -> list[str]:
    """Everything in a cache folder, without looking into what is built."""
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def what_dies_starts_again(line: str, up: Up) -> None:
    """Everything is killed at once, and then a new pod runs."""
    dying = {program: pids_running(program, up.folders) for program in PROGRAMS}
    assert [len(pids) for pids in dying.values()] == [1, 1, 2, 2, 1, 2]
    for pid in itertools.chain(*dying.values()):
        os.kill(pid, signal.SIGKILL)
    in_shell(line, NEW_POD_RUNS)


@pytest.mark.usefixtures("node_ready")
def test_a_pod_of_a_newcomer_runs_with_its_card_and_nothing_of_the_cluster_stays(
    own_cache: Path, request: pytest.FixtureRequest
) -> None:
    before = (settings(), shared_folders())
    cached = kept(own_cache)
    up: Up = request.getfixturevalue("up")
    steps = [line.split(":")[0] for line in up.said if " of " in line[:6]]
    assert steps == [f"{number} of 6" for number in range(1, 7)]
    line = exports(up.said)
    assert len(up.folders) == 3
    units = "'{.items[*].status.allocatable.aliyun\\.com/gpu-mem}'"
    assert in_shell(line, f"kubectl get nodes -o jsonpath={units}") == "32 80"

    in_shell(line, "kubectl apply -f docs/examples/first-pod.yaml")
    in_shell(line, "kubectl wait --for=condition=Ready pod/first-pod --timeout=60s")
    inside = dict(
        entry.split("=", 1) for entry in in_shell(line, "kubectl logs first-pod").splitlines() if "=" in entry
    )
    cards = in_shell(line, "kubectl get pod first-pod -o jsonpath='{.metadata.annotations.gpushare/cards}'")
    assert inside["GPUSHARE_CARD_UUIDS"] in cards
    assert "first-pod" in in_shell(line, "kubectl inspect gpushare -d")
    in_shell(line, "kubectl apply -f docs/examples/too-big.yaml")
    assert "wants 100" in in_shell(line, "gpushare-scheduler explain too-big")
    assert in_shell(line, "kubectl exec first-pod -- echo within").strip() == "within"

    assert "4 admission policies are enforced" in in_shell(line, "kubectl gpushare doctor")
    in_shell(line, f"gpushare-device-plugin fault --control {home()}/faults/n2 --card 0 --xid 79")
    in_shell(line, until_top_shows("^n2 .*xid-79"))
    in_shell(line, f"gpushare-device-plugin fault --control {home()}/faults/n2 --card 0 --back")
    in_shell(line, until_top_shows("^n2 +1 +80 +0 +80 "))

    what_dies_starts_again(line, up)

    again = subprocess.run(
        ["make", "cluster"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.splitlines()
    assert "A cluster is up already." in again
    assert exports(again) == line

    up.ends(signal.SIGINT)
    ended = {said.split()[0] for said in up.said if said.endswith("starting it again")}
    assert {"etcd", "kube-apiserver", "containerd", "kubelet", "gpushare-scheduler"} <= ended
    assert "gone" in up.said
    assert [left for folder, namespace in up.folders.items() for left in left_of(folder, namespace)] == []
    assert (settings(), shared_folders()) == before
    assert kept(own_cache) == cached


@pytest.mark.usefixtures("node_ready", "up")
def test_what_is_installed_passes_the_tests_of_an_existing_cluster() -> None:
    named = {
        "E2E_KUBECONFIG": str(home() / "kubeconfig"),
        "E2E_CONTEXT": "gpushare-local",
        "E2E_PROVIDER": "existing",
    }
    run = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "e2e/suites/installed/test_installed.py"]

    answer = subprocess.run(run, cwd=ROOT, env=os.environ | named, capture_output=True, text=True, check=False)

    assert answer.returncode == 0, answer.stdout
    assert " passed" in answer.stdout


@pytest.mark.usefixtures("node_ready")
def test_nothing_is_left_when_it_is_killed(up: Up) -> None:
    up.ends(signal.SIGKILL)
    assert [left for folder, namespace in up.folders.items() for left in gone(folder, namespace)] == []


@pytest.mark.usefixtures("own_cache")
def test_without_root_and_sudo_one_line_says_what_is_missing_before_anything_is_built(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setenv("PATH", "")
    assert commands.up() == 1
    said = capsys.readouterr().out
    assert "Without root: make demo" in said
    assert said.splitlines()[-1].startswith("not started: ")


@pytest.mark.usefixtures("own_cache")
def test_another_user_than_root_gets_it_by_sudo_with_a_cache_and_a_path_of_his_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given: list[list[str]] = []
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(shutil, "which", lambda _: "/usr/bin/sudo")
    monkeypatch.setattr(os, "execvp", lambda _, command: given.append(command))
    monkeypatch.setattr(binaries, "ensure", lambda _: {})
    monkeypatch.setattr(node_programs, "programs", dict)
    monkeypatch.setattr(node_programs, "lacking", lambda *, root: None if root is False else "root")

    commands.up()

    ((*start, _python, _flag, module, verb),) = given
    assert start[:2] == ["sudo", "env"]
    own = [f"XDG_CACHE_HOME={os.environ['XDG_CACHE_HOME']}", f"PATH={os.environ['PATH']}", "PYTHONDONTWRITEBYTECODE=1"]
    assert {*own} <= {*start}
    assert (module, verb) == ("e2e.local_cluster", "hold")


def test_it_takes_no_package_that_only_tests_need() -> None:
    look = "import sys, e2e.local_cluster.__main__; print(sorted({'pytest', 'hypothesis', 'mypy'} & set(sys.modules)))"
    answer = subprocess.run([sys.executable, "-c", look], cwd=ROOT, capture_output=True, text=True, check=True)
    assert answer.stdout == "[]\n"
