"""NVIDIA cards of a test node, with NVIDIA's own container toolkit; driver and cards are stand-ins.

The stand-ins of NVML and libcuda (`tests.support.nvidia`) take their answers from the *world*, a file at `WORLD` on the
node. The driver is at / of the node, or in a folder where a driver's container has it. Each boot recreates the device
nodes and gives nvidia-uvm another major.
"""

import shlex
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal, TypeAlias

from e2e.control_plane import binaries
from e2e.node import node_keeper
from e2e.node.local_node import LocalNode
from e2e.node.node_commands import NodeSite
from tests.support.nvidia import driver_root, memory
from tests.support.nvidia.world import DRIVER, DRIVER_WITH_LIMITS, World, caps, card, instance, mig_minors, uuid_of

# On the node; containers mount its folder.
WORLD: Final = Path("/etc/gpushare-nvidia/world")
AT_ROOT: Final = Path("/")
# Where a driver container shows its files on the node.
IN_A_CONTAINER: Final = Path("/run/nvidia/driver")
RUNTIME: Final = "nvidia"
Runtime: TypeAlias = Literal["none", "class", "default"]

_TOOLKIT: Final = """\
[nvidia-container-cli]
root = "{root}"
[nvidia-container-runtime]
debug = "/var/log/nvidia-container-runtime.log"
runtimes = ["{runc}"]
"""
_CONTAINERD: Final = """\
  [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.nvidia]
    runtime_type = 'io.containerd.runc.v2'
    [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.nvidia.options]
      BinaryName = '/usr/bin/nvidia-container-runtime'
      SystemdCgroup = false
      Root = '{site.runc_root}'
"""
_DEFAULT: Final = """\
  [plugins.'io.containerd.cri.v1.runtime'.containerd]
    default_runtime_name = 'nvidia'
"""
# The node's own /dev, and files that replace those of the machine. {folder}: the node's.
_MOUNTS: Final = """\
set -e
mkdir {folder}/dev
mount -t tmpfs -o mode=755 dev {folder}/dev
for name in null zero full random urandom tty ptmx kmsg; do
    [ ! -e /dev/$name ] || cp -a /dev/$name {folder}/dev/
done
for name in pts shm; do
    mkdir {folder}/dev/$name
    mount --bind /dev/$name {folder}/dev/$name
done
ln -s /proc/self/fd {folder}/dev/fd
mount --move {folder}/dev /dev
rmdir {folder}/dev
for name in etc usr; do
    mount -t overlay -o lowerdir=/$name,upperdir={folder}/$name/upper,workdir={folder}/$name/work $name /$name
done
mount --bind {folder}/proc-devices /proc/devices
"""
# The kernel module's list of the nodes of MIG instances, where the toolkit and the plugin read it.
_MIG_MINORS: Final = """\
set -e
mount -t tmpfs driver /proc/driver
mkdir /proc/driver/nvidia-caps
cp {folder}/mig-minors /proc/driver/nvidia-caps/mig-minors
"""
# The plugin's view of cgroup v2, wherever this machine has it, with the controllers that the driver needs and this
# machine's kernel may lack.
_HOST_CGROUP: Final = """\
set -e
mkdir -p {folder}/host-cgroup
mount --bind {mounted} {folder}/host-cgroup
echo dmem misc > {folder}/controllers
mount --bind {folder}/controllers {folder}/host-cgroup/cgroup.controllers
"""
# With cgroup v1 and v2 on one machine, runc puts containers into both, but the hook that limits their memory demands v2
# at /sys/fs/cgroup, and its driver takes the path below it. The other hooks change the container's mounts: they must
# have no namespace of their own. {program}: NVIDIA's.
_HOOK_WITH_V2: Final = """\
#!/bin/sh
[ "$1" = apply-cuda-memory-limits ] || exec {program} "$@"
exec unshare --mount --propagation private /bin/sh -c \
    'mount --bind /sys/fs/cgroup/unified /sys/fs/cgroup && exec "$0" "$@"' {program} "$@"
"""


@dataclass
class NvidiaHardware:
    """`LocalNode.Hardware` for one node.

    driver: files of the driver, as `driver_root.make_libraries` creates them. root: where the node has them. runtime:
    whether containerd has NVIDIA's, for pods with the RuntimeClass or for all. specs: name of a file in a folder of CDI
    specs -> options of `nvidia-ctk cdi generate`, which writes it: in /etc/cdi once, in /run/cdi at each boot, as the
    toolkit's service does. limits: whether the driver limits memory by cgroup; `driver` has its version.
    first: number of its first card, which chooses UUIDs. instances: GPU instance and compute instance of each MIG
    instance of the first card; () if that card is whole.
    """

    driver: Path
    cards: int
    root: Path = AT_ROOT
    runtime: Runtime = "none"
    specs: Mapping[Path, Sequence[str]] = field(default_factory=dict)
    limits: bool = False
    first: int = 0
    instances: Sequence[tuple[int, int]] = ()
    boots: int = 0

    @property
    def libraries(self) -> Path:
        """Folder of NVML on the node."""
        return self.root / driver_root.LIBRARIES

    @property
    def version(self) -> str:
        """Version of the driver."""
        return DRIVER_WITH_LIMITS if self.limits else DRIVER

    @property
    def uvm_major(self) -> int:
        """Major of nvidia-uvm since the last boot."""
        return driver_root.UVM_MAJOR - self.boots

    def install(self, site: NodeSite, runc: Path) -> str:
        self._write_files(site.folder, runc)
        parts = {"none": "", "class": _CONTAINERD, "default": _CONTAINERD + _DEFAULT}
        return parts[self.runtime].format(site=site)

    def boot(self, node: LocalNode) -> None:
        self.boots += 1
        self._write_devices(node.folder / "proc-devices")
        node.run("/bin/sh", "-c", _MOUNTS.format(folder=shlex.quote(str(node.folder))))
        if self.root == AT_ROOT:
            node.run("ldconfig")
        else:
            shutil.copytree(self.driver, _within(node, self.root), symlinks=True)
        if self.runtime != "none":
            # As in the container of a plugin that NVIDIA's runtime runs: this mount is how the plugin detects it.
            library = self.libraries / f"libnvidia-ml.so.{self.version}"
            node.run("mount", "--bind", library, library)
        if self.limits:
            mounted = "/sys/fs/cgroup/unified" if _has_v1() else "/sys/fs/cgroup"
            script = _HOST_CGROUP.format(folder=shlex.quote(str(node.folder)), mounted=mounted)
            node.run("/bin/sh", "-c", script)
        driver_root.make_nodes(_within(node, self.root / "dev"), range(self.cards), uvm_major=self.uvm_major)
        world = self.world(node)
        shutil.rmtree(memory.folder_of(world.path), ignore_errors=True)
        world.write()
        if self.instances:
            (node.folder / "mig-minors").write_text(mig_minors(range(self.cards)))
            node.run("/bin/sh", "-c", _MIG_MINORS.format(folder=shlex.quote(str(node.folder))))
            self.make_caps(node)
        for path, options in self.specs.items():
            if not _within(node, path).exists():
                self.generate(node, path, options)

    def host_cgroup(self, node: LocalNode) -> Path:
        """Return where the node shows the plugin the host's cgroups; with `limits` only."""
        return node.folder / "host-cgroup"

    def world(self, node: LocalNode) -> World:
        """Return the world of the node since its last boot; not written."""
        path = _within(node, WORLD)
        facts = {"memory_limits": 1} if self.limits else {}
        cards = [card(number, **facts, uuid=uuid_of(self.first + number)) for number in range(self.cards)]
        if self.instances:
            cards[0] |= {"mig": 1, "monitor": 1, "instances": [instance(0, *place) for place in self.instances]}
        return World(path, cards, [f"uvm_major {self.uvm_major}"], self.version)

    def make_caps(self, node: LocalNode) -> None:
        """Create the nodes of the instances, and remove those of earlier ones."""
        folder = _within(node, self.root / "dev")
        shutil.rmtree(folder / "nvidia-caps", ignore_errors=True)
        driver_root.make_caps(folder, [minor for place in self.instances for minor in caps(0, *place)])

    def generate(self, node: LocalNode, path: Path, options: Sequence[str]) -> None:
        """Have NVIDIA's toolkit write a CDI spec. Raises local_node.CommandFailed."""
        _within(node, path).parent.mkdir(exist_ok=True)
        node.run("nvidia-ctk", "cdi", "generate", f"--output={path}", *options)

    def _write_files(self, folder: Path, runc: Path) -> None:
        """Put driver and toolkit into the node's own parts of /etc and /usr."""
        etc, usr = (folder / name / "upper" for name in ("etc", "usr"))
        for upper in (etc, usr):
            upper.mkdir(parents=True)
            (upper.parent / "work").mkdir()
        if self.root == AT_ROOT:
            shutil.copytree(self.driver / "usr", usr, symlinks=True, dirs_exist_ok=True)
        (usr / "bin").mkdir()
        for name, program in binaries.ensure(binaries.OF_NVIDIA).items():
            _install(usr / "bin" / name, program)
        (etc / WORLD.parent.name).mkdir()
        (etc / "nvidia-container-runtime").mkdir()
        toolkit = _TOOLKIT.format(root=self.root, runc=runc)
        (etc / "nvidia-container-runtime" / "config.toml").write_text(toolkit)

    def _write_devices(self, path: Path) -> None:
        """Write /proc/devices with the majors of NVIDIA's kernel modules."""
        head, blank, tail = Path("/proc/devices").read_text().partition("\n\n")
        own = f"\n{driver_root.CARDS_MAJOR} nvidia\n{driver_root.CARDS_MAJOR} nvidiactl\n{self.uvm_major} nvidia-uvm"
        path.write_text(head + own + blank + tail)


def compile_driver(folder: Path, version: str = DRIVER) -> Path:
    """Compile files of a stand-in driver into this folder, and return it."""
    driver_root.make_libraries(folder, version)
    (folder / "etc").mkdir()
    subprocess.run(["/sbin/ldconfig", "-r", folder], check=True)
    return folder


def _install(place: Path, program: Path) -> None:
    """Make a program of NVIDIA's toolkit available; on a machine with cgroup v1 and v2, `_HOOK_WITH_V2`."""
    if program.name != "nvidia-cdi-hook" or not _has_v1():
        place.symlink_to(program)
        return
    place.write_text(_HOOK_WITH_V2.format(program=shlex.quote(str(program))))
    place.chmod(0o755)


def _has_v1() -> bool:
    """Return whether this machine has cgroup v1, and v2 beside it."""
    return node_keeper.controllers_of_v2() is None


def _within(node: LocalNode, path: Path) -> Path:
    """Return the path of the node as seen from outside."""
    return node.root / path.relative_to("/")
