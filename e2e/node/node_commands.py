"""Command lines and configuration files of a node's programs.

Everything listens on 127.0.0.1 or on a socket in the node's folder. Each setting was tested with the versions in
`servers/*/go.mod`, on cgroup v1 and v2, without the right to raise limits.
"""

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from e2e.control_plane import commands
from e2e.node import images

NAMESPACE: Final = "k8s.io"  # containerd's namespace for everything that a kubelet creates
_NETWORK: Final = {"cniVersion": "1.0.0", "name": "none", "plugins": [{"type": "none"}]}
_CONTAINERD: Final = """\
version = 3
disabled_plugins = ['io.containerd.internal.v1.opt']
root = '{site.folder}/root'
state = '{site.containerd_state}'
[grpc]
  address = '{site.socket}'
[plugins.'io.containerd.cri.v1.images']
  snapshotter = 'overlayfs'
  [plugins.'io.containerd.cri.v1.images'.pinned_images]
    sandbox = '{pause}'
[plugins.'io.containerd.cri.v1.runtime']
  restrict_oom_score_adj = true
  [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
    runtime_type = 'io.containerd.runc.v2'
    [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
      BinaryName = '{runc}'
      SystemdCgroup = false
      Root = '{site.runc_root}'
  [plugins.'io.containerd.cri.v1.runtime'.cni]
    bin_dirs = ['{site.network}']
    conf_dir = '{site.network}'
"""


@dataclass(frozen=True, slots=True)
class NodeSite:
    """Locations of a node's files and listeners.

    folder: the same path inside and outside the node's mount namespace; its `run`, `var-lib` and `var-log` are /run,
    /var/lib and /var/log inside. cgroup: unique name in every hierarchy, because kubelets that share one end each
    other's pods.
    """

    name: str
    folder: Path
    cgroup: str
    port: int
    health_port: int

    @property
    def socket(self) -> Path:
        """Socket of containerd."""
        return self.folder / "containerd.sock"

    @property
    def containerd_state(self) -> Path:
        """State folder of containerd; on a real machine in /run, like `runc_root`."""
        return self.folder / "state"

    @property
    def runc_root(self) -> Path:
        """State folder of runc, with one folder per containerd namespace."""
        return self.folder / "runc"

    @property
    def network(self) -> Path:
        """Folder of containerd's pod networks."""
        return self.folder / "network"

    @property
    def static_pods(self) -> Path:
        """Folder of static pods for its kubelet."""
        return self.folder / "static-pods"

    @property
    def pod_logs(self) -> Path:
        """Folder of container output, with one folder per pod."""
        return self.folder / "pod-logs"


def containerd_configuration(site: NodeSite, runc: Path) -> str:
    """Return TOML for `containerd -c`. CDI specs are read from /etc/cdi and /var/run/cdi, as everywhere.

    The plugin `opt` is left out, because it creates /opt/containerd on the machine.
    """
    return _CONTAINERD.format(site=site, runc=runc, pause=images.PAUSE)


def network_configuration() -> str:
    """Return a network that never works, so that the node counts as ready: its pods use the machine's."""
    return commands.as_yaml(_NETWORK)


def containerd(program: Path, configuration: Path) -> list[str]:
    """Return the command; it finds the shim next to the program."""
    return [str(program), "-c", str(configuration)]


def ctr(program: Path, site: NodeSite) -> list[str]:
    """Return the prefix of a `ctr` command to the node's containerd, in the kubelet's namespace."""
    return [str(program), f"--address={site.socket}", f"--namespace={NAMESPACE}"]


def kubelet_configuration(site: NodeSite, ca: Path, overrides: Mapping[str, Any]) -> dict[str, Any]:
    """Return a KubeletConfiguration; `overrides` win, key by key."""
    full_disk = dict.fromkeys(("imagefs.available", "nodefs.available", "nodefs.inodesFree"), "0%")
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": "127.0.0.1",
        "port": site.port,
        "healthzBindAddress": "127.0.0.1",
        "healthzPort": site.health_port,
        "readOnlyPort": 0,
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": str(ca)},
        },
        "authorization": {"mode": "Webhook"},
        "containerRuntimeEndpoint": f"unix://{site.socket}",
        "failCgroupV1": False,
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{site.cgroup}",
        "enforceNodeAllocatable": [],
        "failSwapOn": False,
        "resolvConf": "",
        "makeIPTablesUtilChains": False,
        "podLogsDir": str(site.pod_logs),
        "staticPodPath": str(site.static_pods),
        "fileCheckFrequency": "1s",
        "volumePluginDir": str(site.folder / "volume-plugins"),
        "nodeStatusUpdateFrequency": "1s",
        # The fill level of the machine's disk does not matter here.
        "evictionHard": full_disk,
        "imageGCHighThresholdPercent": 100,
        **overrides,
    }


def kubelet(program: Path, name: str, configuration: Path, kubeconfig: Path) -> list[str]:
    """Return the kubelet's command for a node with that name, whatever the machine's name is."""
    return [str(program), f"--config={configuration}", f"--kubeconfig={kubeconfig}", f"--hostname-override={name}"]


def within(pid: int, command: Sequence[str | Path]) -> list[str]:
    """Run the command in the mount namespace of a process; nsenter execs it."""
    return [shutil.which("nsenter") or "nsenter", f"--target={pid}", "--mount", "--", *map(str, command)]
