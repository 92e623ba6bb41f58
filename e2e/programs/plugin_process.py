"""Our device plugin on a node of ours: a process that sees the node's folders, with simulated cards.

Its rights are those of an installation: a token of its ServiceAccount, bound to a pod on its node.
"""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from deviceplugin.driver import fault_control
from e2e.control_plane import commands
from e2e.control_plane.admin import Admin, Json
from e2e.control_plane.processes import free_ports
from e2e.node import node_pods
from e2e.node.local_node import LocalNode
from e2e.programs import manifests
from e2e.programs.server_process import ServerProcess
from tests.support.repository import ROOT

_HEAD: Final = {"apiVersion": "gpushare/v1alpha1", "kind": "DevicePluginConfiguration"}


class DevicePluginProcess(ServerProcess):
    """One `gpushare-device-plugin run`; enter it to start it.

    control: the socket that takes faults. configuration: its file. variables: added to its environment.
    """

    def __init__(
        self,
        node: LocalNode,
        token: str,
        cards_mib: Sequence[int],
        *,
        modules: Path | None = None,
        variables: Mapping[str, str] | None = None,
        **configuration: Any,  # noqa: ANN401 - fields of a file
    ) -> None:
        """cards_mib: memory of each simulated card. configuration: fields of its file, as they are written there.

        modules: a folder whose modules stand in for installed ones. variables: more of its environment.
        """
        (port,) = free_ports(1)
        self._made_of = (node, token, tuple(cards_mib), modules, variables, configuration)
        self.node = node
        self.token = token
        self.variables = dict(variables or {})
        self.control = node.folder / f"faults-{port}.sock"
        files = _files(node, port, token, cards_mib, {"simulateControl": str(self.control)} | configuration)
        self.configuration = files
        run = [sys.executable, "-m", "deviceplugin.main", "run"]
        line = [*run, "--config", str(files), "--listen", f"127.0.0.1:{port}"]
        environment = {"NODE_NAME": node.name, "PYTHONPATH": ":".join(map(str, filter(None, (modules, ROOT))))}
        environment |= self.variables
        # One log for each start of a node's program by that name.
        name = f"gpushare-device-plugin-{port}"
        super().__init__(lambda: node.enter(name, line, environment), node.folder / f"{name}.log", port)

    def another(self) -> "DevicePluginProcess":
        """A second one for the same node, with the same settings; not started."""
        node, token, cards_mib, modules, variables, configuration = self._made_of
        return DevicePluginProcess(node, token, cards_mib, modules=modules, variables=variables, **configuration)

    async def happens(self, **fault: object) -> None:
        """Let something happen to the cards; see `deviceplugin.driver.fault_control`."""
        await fault_control.tell(self.control, fault)


async def token(admin: Admin, node: str, *, lasts_s: int = 3600) -> str:
    """A token of the plugin's account, as the kubelet of `node` gets one for the plugin's pod; the pod waits there."""
    name = f"device-plugin-{node}"
    wanted = node_pods.pod(name, nodeName=node, serviceAccountName=manifests.PLUGIN, automountServiceAccountToken=False)
    created = await admin.create(f"/api/v1/namespaces/{manifests.NAMESPACE}/pods", wanted)
    return await manifests.token(admin, manifests.PLUGIN, created, lasts_s=lasts_s)


def _files(node: LocalNode, port: int, token: str, cards_mib: Sequence[int], configuration: Mapping[str, Any]) -> Path:
    """Write cluster file, kubeconfig and configuration into the node's folder; the last one's path."""
    kubeconfig = node.cluster.kubeconfig_for(token, f"device-plugin-{port}")
    cluster: Json = {"nodes": [{"name": node.name, "cards": [{"model": "SIM", "memoryMiB": mib} for mib in cards_mib]}]}
    cards = node.folder / f"cards-{port}.yaml"
    cards.write_text(commands.as_yaml(cluster), encoding="utf-8")
    path = node.folder / f"device-plugin-{port}.yaml"
    own = {"clientConnection": {"kubeconfig": str(kubeconfig)}, "simulate": str(cards)}
    path.write_text(commands.as_yaml({**_HEAD, **own, **configuration}), encoding="utf-8")
    return path
