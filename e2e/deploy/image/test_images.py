"""The image: built twice, looked into, its programs run in it, and both installed from it on a real kubelet.

They run by runc as a hardened pod runs them: the root file system is read-only, the user is the image's, without
capabilities and without new privileges.
"""

import asyncio
import json
import os
import re
import secrets
import shutil
import subprocess
import tarfile
import time
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import pytest

from config.protocol import names
from config.settings import isolation
from e2e.control_plane import binaries
from e2e.control_plane.admin import Admin, Json, done
from e2e.control_plane.cluster import ControlPlane
from e2e.deploy.chart.helm import Helm
from e2e.deploy.image import installed_node
from e2e.deploy.image.base_image import ImageUnavailable
from e2e.deploy.image.image_builder import BuiltImage, ImageBuilder, image_builder
from e2e.node.local_node import LocalNode
from e2e.programs import manifests
from e2e.support.shared_node import GIB, all_settled, expected_inside, pods, shared_pod, sharing, what_is_inside
from tests.support.documents import guide
from tests.support.node import mps_double
from tests.support.repository import ROOT

_RUN_WITHIN_S: Final = 120.0
# Of what `runc spec` proposes; what it leaves out is a network, which none of these programs needs.
_NO_CAPABILITIES: Final[dict[str, list[str]]] = {}


class UnpackedImage:
    """One image in a folder of its own."""

    def __init__(self, image: BuiltImage, archive: Path, folder: Path, runc: Path) -> None:
        """archive: as `ImageBuilder.save` writes it. folder: is not there yet."""
        self._image = image
        self._folder = folder
        self._runc = [str(runc), f"--root={folder / 'state'}"]
        self.root = folder / "rootfs"
        self.root.mkdir(parents=True)
        with tarfile.open(archive) as whole:
            (manifest,) = json.load(_file(whole, "manifest.json"))
            for layer in manifest["Layers"]:
                with tarfile.open(fileobj=_file(whole, layer)) as files:
                    files.extractall(self.root, filter="fully_trusted")  # noqa: S202 - we have built it

    @property
    def bytes(self) -> int:
        """Of all of its files."""
        return sum(path.lstat().st_size for path in self.root.rglob("*") if not path.is_dir())

    def run(self, *command: str) -> str:
        """What the program writes to both streams. Raises CalledProcessError."""
        self._write_specification(command)
        name = f"gpushare-image-{secrets.token_hex(4)}"
        return subprocess.run(
            [*self._runc, "run", f"--bundle={self._folder}", name],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=True,
            timeout=_RUN_WITHIN_S,
        ).stdout

    def _write_specification(self, command: Sequence[str]) -> None:
        target = self._folder / "config.json"
        target.unlink(missing_ok=True)
        subprocess.run([*self._runc, "spec", f"--bundle={self._folder}"], check=True)
        proposed: dict[str, Any] = json.loads(target.read_text(encoding="utf-8"))
        uid, gid = map(int, self._image.configuration["User"].split(":"))
        proposed["process"] |= {
            "terminal": False,
            "user": {"uid": uid, "gid": gid},
            "args": [*command],
            "env": self._image.configuration["Env"],
            "capabilities": _NO_CAPABILITIES,
            "noNewPrivileges": True,
        }
        proposed["root"]["readonly"] = True
        target.write_text(json.dumps(proposed), encoding="utf-8")


def _file(archive: tarfile.TarFile, name: str) -> Any:  # noqa: ANN401 - as tarfile has it
    """The content of one file. Raises KeyError where it is not in there."""
    found = archive.extractfile(archive.getmember(name))
    if found is None:
        raise KeyError(name)
    return found


VERSION: Final = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
COMMIT: Final = "0123456789ab"
PROGRAMS: Final = {
    "gpushare-scheduler": "gpushare-scheduler",
    "gpushare-device-plugin": "gpushare-device-plugin",
    "gpushare-device-plugin-v2": "gpushare-device-plugin",
    "kubectl-inspect-gpushare": "kubectl-inspect-gpushare",
}
BIN: Final = "/opt/gpushare/bin"
AT_MOST_MIB: Final = 320
# Source: `readelf -d` of libnvidia-ml.so.1 and libcuda.so.1.
OF_THE_DRIVER: Final = ("libdl.so.2", "libm.so.6", "libpthread.so.0", "librt.so.1")
# Where a script stands for NVIDIA's control program of MPS.
DOUBLE_AT: Final = "/opt/mps-double"
# Source: linux/capability.h.
CAP_SYS_ADMIN: Final = 21
ENDED_WITHIN_S: Final = 60.0
# As containerd completes the name that the manifests have.
NAME: Final = f"docker.io/library/gpushare-scheduler:{VERSION}"


@pytest.fixture(scope="module")
def builder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ImageBuilder]:
    folder = tmp_path_factory.mktemp("images")
    try:
        yield image_builder(folder)
    except ImageUnavailable as error:
        if os.environ.get("CI"):
            pytest.fail(str(error), pytrace=False)
        pytest.skip(str(error))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="module")
def image(builder: ImageBuilder) -> BuiltImage:
    return builder.build(f"localhost/gpushare-scheduler:{VERSION}", COMMIT)


@pytest.fixture(scope="module")
def archive(builder: ImageBuilder, image: BuiltImage, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("archive") / "image.tar"
    builder.save(image, NAME, path)
    return path


@pytest.fixture(scope="module")
def runc(node_ready: None) -> Path:  # noqa: ARG001 - asked for its skip: runc takes what a node takes
    return binaries.ensure(["runc"])["runc"]


@pytest.fixture(scope="module")
def unpacked(
    image: BuiltImage,
    archive: Path,
    runc: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> UnpackedImage:
    return UnpackedImage(image, archive, tmp_path_factory.mktemp("unpacked") / "image", runc)


@pytest.mark.nightly
def test_a_second_build_makes_the_same_bytes(builder: ImageBuilder, image: BuiltImage) -> None:
    again = builder.build("localhost/gpushare-scheduler:second", COMMIT)
    assert again.layers == image.layers


def test_the_labels_say_what_it_is(image: BuiltImage, unpacked: UnpackedImage) -> None:
    labels = image.configuration["Labels"]
    assert labels["org.opencontainers.image.title"] == "gpushare-scheduler"
    assert labels["org.opencontainers.image.version"] == VERSION
    assert labels["org.opencontainers.image.revision"] == COMMIT
    assert (unpacked.root / labels["gpushare.sbom"].removeprefix("/")).is_file()


def test_the_bill_of_materials_lists_what_is_in_it(image: BuiltImage, unpacked: UnpackedImage) -> None:
    place = image.configuration["Labels"]["gpushare.sbom"].removeprefix("/")
    document = json.loads((unpacked.root / place).read_text(encoding="utf-8"))
    pinned = set(re.findall(r"^([a-z0-9.-]+)==(\S+)", (ROOT / "requirements/runtime.txt").read_text(), re.MULTILINE))
    listed = {(part["name"], part["version"]) for part in document["components"] if "pypi" in part["purl"]}
    installed = {path.name.split("-")[0] for path in unpacked.root.glob("opt/gpushare/lib/*/site-packages/*.dist-info")}
    assert document["metadata"]["component"]["purl"] == f"pkg:pypi/gpushare-scheduler@{VERSION}"
    assert listed <= pinned
    assert len(listed) == len(installed) - 1  # our own is what the document is about
    assert {"libc6", "libssl3t64"} <= {part["name"] for part in document["components"]}


def test_nothing_is_in_it_that_helps_an_intruder(unpacked: UnpackedImage) -> None:
    files = {path.name for path in unpacked.root.rglob("*") if path.is_file() or path.is_symlink()}
    assert not files & {"sh", "bash", "dash", "apt", "dpkg", "pip", "pip3", "gcc", "curl", "wget", "mount", "su"}
    assert not list(unpacked.root.rglob("pip"))
    special = [path for path in unpacked.root.rglob("*") if not path.is_symlink() and path.stat().st_mode & 0o6000]
    assert special == []


def test_it_is_small(unpacked: UnpackedImage, capsys: pytest.CaptureFixture[str]) -> None:
    size_mib = unpacked.bytes / 2**20
    with capsys.disabled():
        print(f"\nthe image: {size_mib:.0f} MiB, uncompressed")  # noqa: T201 - measured, for docs/evidence/tested-on.md
    assert size_mib < AT_MOST_MIB


@pytest.mark.parametrize("program", PROGRAMS)
def test_every_program_says_its_version(unpacked: UnpackedImage, program: str) -> None:
    assert unpacked.run(f"{BIN}/{program}", "--version") == f"{PROGRAMS[program]} {VERSION} (commit {COMMIT})\n"


def test_what_the_drivers_libraries_are_linked_against_can_be_loaded_in_it(unpacked: UnpackedImage) -> None:
    loaded = f"import ctypes; print([ctypes.CDLL(name)._name for name in {OF_THE_DRIVER}])"
    assert unpacked.run(f"{BIN}/python", "-c", loaded) == f"{list(OF_THE_DRIVER)}\n"


def test_the_demo_runs_in_it(unpacked: UnpackedImage) -> None:
    shown = unpacked.run(f"{BIN}/gpushare-scheduler", "demo", "--speed", "1000")
    assert "no card was ever over-committed" in shown


def test_every_module_is_compiled(unpacked: UnpackedImage) -> None:
    sources = {path for path in unpacked.root.rglob("*.py") if "lib2to3" not in path.parts}
    compiled = {path.parents[1] / f"{path.name.split('.cpython-')[0]}.py" for path in unpacked.root.rglob("*.pyc")}
    assert sources <= compiled


@pytest.mark.nightly
def test_a_rule_of_ones_own_is_copied_in(
    builder: ImageBuilder, unpacked: UnpackedImage, runc: Path, tmp_path: Path
) -> None:
    guide.write(tmp_path / "rule")
    image = builder.build_folder("localhost/with-a-rule:1", tmp_path / "rule")
    builder.save(image, "docker.io/library/with-a-rule:1", tmp_path / "image.tar")
    with_rule = UnpackedImage(image, tmp_path / "image.tar", tmp_path / "unpacked", runc)
    for name in ("scheduler.yaml", "cluster.yaml"):
        shutil.copy(tmp_path / "rule" / name, with_rule.root / "etc" / name)
    simulate = (f"{BIN}/gpushare-scheduler", "simulate", "--config", "/etc/scheduler.yaml", "/etc/cluster.yaml")
    assert with_rule.bytes > unpacked.bytes
    assert "had enough pods of the same owner" in " ".join(with_rule.run(*simulate).split())


def with_mps(helm: Helm, node: LocalNode) -> list[Json]:
    """What the chart renders for MPS, with a script for NVIDIA's control program."""
    folder = node.folder / "mps-double"
    folder.mkdir()
    control = mps_double.installed(folder, f"{BIN}/python")
    settings = {"isolation": "mps", "mps": {"control": f"{DOUBLE_AT}/{control.name}"}}
    rendered = helm.objects({"devicePlugin": {"config": settings}})
    (pod,) = (each["spec"]["template"]["spec"] for each in rendered if each["kind"] == "DaemonSet")
    pod["volumes"].append({"name": "double", "hostPath": {"path": str(folder)}})
    pod["containers"][0]["volumeMounts"].append({"name": "double", "mountPath": DOUBLE_AT, "readOnly": True})
    return rendered


@pytest.mark.nightly
async def test_the_daemons_of_mps_run_in_the_pod_of_the_chart(
    node_ready: None,  # noqa: ARG001 - asked for its skip
    helm: Helm,
    archive: Path,
) -> None:
    with ControlPlane(controller_manager=True, scheduler={}) as cluster, LocalNode(cluster, "n1") as node:
        node.import_images(archive)
        async with Admin(cluster.access()) as admin:
            await installed_node.install(admin, node, [16 * GIB], with_mps(helm, node))
            _, plugin = await installed_node.ready(admin)
            async with pods(admin, [shared_pod("client", [sharing(4)], hostIPC=True)]) as created:
                (client,) = await all_settled(admin, created)
                inside = node.container(client).environment()
                pipes = node.folder / inside[isolation.MPS_PIPES].removeprefix("/")
                assert (pipes / mps_double.PID_FILE).exists()
                rights = user_and_capabilities(node.container(plugin).pid)
                shared_memory = {memory_namespace(node.container(pod).pid) for pod in (client, plugin)}
            done(await admin.delete(f"{installed_node.DAEMON_SETS}/{manifests.PLUGIN}"))
            # The plugin tells its daemons to end, and removes nothing of one that is killed.
            async with asyncio.timeout(ENDED_WITHIN_S):
                while (pipes / mps_double.PID_FILE).exists():  # noqa: ASYNC110 - a file tells nobody
                    await asyncio.sleep(0.1)
    assert inside["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] == "0=4096M"
    assert pipes.name == inside["GPUSHARE_CARD_UUIDS"]
    assert rights[0] == 0
    assert rights[1] & 1 << CAP_SYS_ADMIN
    assert len(shared_memory) == 1


def memory_namespace(pid: int) -> Path:
    """Processes that have the same one share `/dev/shm`."""
    return Path(f"/proc/{pid}/ns/ipc").readlink()


def user_and_capabilities(pid: int) -> tuple[int, int]:
    """As whom a process runs, and the capabilities in effect, as the kernel has both."""
    told = dict(line.split(":\t", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines() if ":\t" in line)
    return int(told["Uid"].split()[0]), int(told["CapEff"], 16)


async def test_both_programs_run_as_pods_of_the_manifests(
    node_ready: None,  # noqa: ARG001 - asked for its skip
    archive: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with ControlPlane(controller_manager=True, scheduler={}) as cluster, LocalNode(cluster, "n1") as node:
        node.import_images(archive)
        async with Admin(cluster.access()) as admin:
            began_s = time.monotonic()
            await installed_node.install(admin, node, [16 * GIB, 16 * GIB])
            scheduler, plugin = await installed_node.ready(admin)
            took_s = time.monotonic() - began_s
            wanted = [shared_pod(f"p{number}", [sharing(6)]) for number in range(4)]
            async with pods(admin, wanted) as created:
                found = await all_settled(admin, created)
                inside = [what_is_inside(node.container(pod)) for pod in found]
            rights = [user_and_capabilities(node.container(pod).pid) for pod in (scheduler, plugin)]
    assert {pod["status"]["phase"] for pod in found} == {"Running"}
    expected = [
        expected_inside(pod, json.loads(pod["metadata"]["annotations"][names.ALLOCATION])["0"]) for pod in found
    ]
    assert inside == expected
    assert {pod["status"]["containerStatuses"][0]["restartCount"] for pod in (scheduler, plugin)} == {0}
    assert rights == [(65532, 0), (0, 0)]
    with capsys.disabled():
        print(f"\nfrom the first manifest to both pods ready: {took_s:.1f} s")  # noqa: T201 - as above
