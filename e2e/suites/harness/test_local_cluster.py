"""`make cluster` as a newcomer has it: up, a pod that runs with its card, down, and nothing of it is left."""

import itertools
import os
import shlex
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

import pytest

from e2e.control_plane import cache
from e2e.local_cluster import __main__ as commands
from e2e.local_cluster import record
from e2e.support.traces import gone, left_of, mount_namespace, settings, shared_folders
from tests.support.repository import ROOT

WITHIN_S = 300
Make = Callable[[str], subprocess.CompletedProcess[str]]


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


@pytest.fixture
def make(own_cache: Path) -> Iterator[Make]:
    """Runs a target of this clone; whatever a test leaves is taken down after it."""
    del own_cache

    def run(target: str) -> subprocess.CompletedProcess[str]:
        command = ["make", "--no-print-directory", target]
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=WITHIN_S, check=False)

    yield run
    run("cluster-down")


def exports(said: str) -> str:
    """The line that a user pastes."""
    (line,) = (line for line in said.splitlines() if line.lstrip().startswith("export KUBECONFIG="))
    return line.strip()


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


def folders() -> dict[Path, str]:
    """Of the cluster that is up, with the mount namespace of each that has one of its own."""
    written = record.read()
    assert written is not None
    own = mount_namespace(os.getpid())
    found = {}
    for folder in map(Path, written.folders):
        namespaces = {namespace_of(pid) for pid in pids_of(folder)} - {own, ""}
        found[folder] = next(iter(namespaces), "")
    return found


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


def what_dies_starts_again(line: str, made: Iterable[Path]) -> None:
    """Everything is killed at once, and then a new pod runs."""
    dying = {program: pids_running(program, made) for program in PROGRAMS}
    assert [len(pids) for pids in dying.values()] == [1, 1, 2, 2, 1, 2]
    for pid in itertools.chain(*dying.values()):
        os.kill(pid, signal.SIGKILL)
    in_shell(line, NEW_POD_RUNS)
    ended = [
        entry.split()[0] for entry in (record.home() / "log").read_text().splitlines() if "starting it again" in entry
    ]
    assert {"etcd", "kube-apiserver", "containerd", "kubelet", "gpushare-scheduler"} <= set(ended)


@pytest.mark.usefixtures("node_ready")
def test_a_pod_of_a_newcomer_runs_with_its_card_and_nothing_of_the_cluster_stays(make: Make, own_cache: Path) -> None:
    before = (settings(), shared_folders())
    cached = kept(own_cache)

    up = make("cluster")
    assert up.returncode == 0, up.stdout + up.stderr
    steps = [
        line.split(":")[0].strip() for line in up.stdout.splitlines() if line.startswith("  ") and " of " in line[:8]
    ]
    assert steps == [f"{number} of 6" for number in range(1, 7)]
    line, made = exports(up.stdout), folders()
    assert len(made) == 3
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
    in_shell(line, f"gpushare-device-plugin fault --control {record.home()}/faults/n2 --card 0 --xid 79")
    in_shell(line, until_top_shows("^n2 .*xid-79"))
    in_shell(line, f"gpushare-device-plugin fault --control {record.home()}/faults/n2 --card 0 --back")
    in_shell(line, until_top_shows("^n2 +1 +80 +0 +80 "))

    what_dies_starts_again(line, made)

    again = make("cluster")
    assert (again.returncode, again.stdout.splitlines()[0]) == (0, "A cluster is up already.")
    assert exports(again.stdout) == line

    down = make("cluster-down")
    assert down.returncode == 0, down.stdout + down.stderr
    assert {folder: left_of(folder, namespace) for folder, namespace in made.items()} == {folder: [] for folder in made}
    assert (settings(), shared_folders()) == before
    assert kept(own_cache) == cached
    assert make("cluster-down").stdout == "No cluster is up.\n"


@pytest.mark.usefixtures("node_ready")
def test_what_is_installed_passes_the_tests_of_an_existing_cluster(make: Make) -> None:
    assert make("cluster").returncode == 0
    named = {
        "E2E_KUBECONFIG": str(record.home() / "kubeconfig"),
        "E2E_CONTEXT": "gpushare-local",
        "E2E_PROVIDER": "existing",
    }
    run = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "e2e/suites/installed/test_installed.py"]

    answer = subprocess.run(run, cwd=ROOT, env=os.environ | named, capture_output=True, text=True, check=False)

    assert answer.returncode == 0, answer.stdout
    assert " passed" in answer.stdout


@pytest.mark.usefixtures("node_ready")
def test_after_a_crash_of_everything_that_would_tidy_up_nothing_is_left(make: Make, own_cache: Path) -> None:
    cached = kept(own_cache)
    up = make("cluster")
    assert up.returncode == 0, up.stdout + up.stderr
    in_shell(exports(up.stdout), "kubectl apply -f docs/examples/first-pod.yaml")
    in_shell(exports(up.stdout), "kubectl wait --for=condition=Ready pod/first-pod --timeout=60s")
    made, written = folders(), record.read()
    assert written is not None
    tidying = [pid for folder in made for pid in pids_of(folder) if is_tidying(pid)]
    assert len(tidying) == 3

    for pid in (*tidying, written.keeper):
        os.kill(pid, signal.SIGKILL)
    assert any(left_of(folder) for folder in made)
    down = make("cluster-down")

    assert down.returncode == 0, down.stdout + down.stderr
    assert {folder: gone(folder, namespace) for folder, namespace in made.items()} == {folder: [] for folder in made}
    assert kept(own_cache) == cached


def is_tidying(pid: int) -> bool:
    """Whether the process is one that tidies up after others. One that has ended since it was found is none."""
    try:
        command_line = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False
    return b"node_keeper.py" in command_line or b"sweeper.py" in command_line


def test_what_a_machine_that_was_switched_off_has_left_is_removed(
    own_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    before = kept(own_cache)
    folder = tmp_path / "gpushare-e2e-0"
    (folder / "etcd").mkdir(parents=True)
    record.write([str(folder), str(tmp_path / "absent")])
    (record.home() / "kubeconfig").touch()
    # Without root it would ask for it first, although nothing here belongs to anybody else.
    monkeypatch.setattr(os, "geteuid", lambda: 0)

    assert commands.down() == 0

    assert not folder.exists()
    assert kept(own_cache) == before
    assert "gone after" in capsys.readouterr().out
    assert commands.down() == 0
    assert capsys.readouterr().out == "No cluster is up.\n"
    assert kept(own_cache) == before


def test_processes_that_name_the_folder_are_ended_and_no_others(tmp_path: Path) -> None:
    folder = tmp_path / "gpushare-e2e-1"
    folder.mkdir()
    sleep = "import sys, time; time.sleep(60)"
    named = subprocess.Popen([sys.executable, "-c", sleep, str(folder / "a")])
    other = subprocess.Popen([sys.executable, "-c", sleep, str(tmp_path / "b")])
    try:
        record.remove(folder)
        assert named.wait(10) == -signal.SIGKILL
        assert other.poll() is None
        assert not folder.exists()
    finally:
        named.kill()
        other.kill()
        named.wait()
        other.wait()


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
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = tmp_path / "said"
    sudo = tmp_path / "bin" / "sudo"
    sudo.parent.mkdir()
    sudo.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" >{shlex.quote(str(said))}\n')
    sudo.chmod(0o755)
    record.write([])
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setenv("PATH", f"{sudo.parent}:{os.environ['PATH']}")

    assert commands.down() == 0

    assert capsys.readouterr().out == ""
    given = said.read_text().splitlines()
    assert given[0] == "env"
    assert {
        f"XDG_CACHE_HOME={os.environ['XDG_CACHE_HOME']}",
        f"PATH={os.environ['PATH']}",
        "PYTHONDONTWRITEBYTECODE=1",
    } <= set(given)
    assert given[-4:] == [sys.executable, "-m", "e2e.local_cluster", "down"]


def test_it_takes_no_package_that_only_tests_need() -> None:
    look = "import sys, e2e.local_cluster.__main__; print(sorted({'pytest', 'hypothesis', 'mypy'} & set(sys.modules)))"
    answer = subprocess.run([sys.executable, "-c", look], cwd=ROOT, capture_output=True, text=True, check=True)
    assert answer.stdout == "[]\n"
