"""Scheduler and device plugin on a node of ours as pods of the installed manifests, from the image.

Nothing is started by hand: kube-scheduler and the controllers make their pods, the kubelet starts them. What differs
from an installation, since the pods of a node of ours have the network of the machine and no Service leads to the API
server: `hostNetwork`, a port of loopback, one replica of the scheduler, the address of the API server. The cards are
simulated, as a ConfigMap says.
"""

import copy
from collections.abc import Sequence
from typing import Final
from urllib.parse import urlsplit

from e2e.control_plane import commands
from e2e.control_plane.admin import Admin, Json, done, seen
from e2e.control_plane.processes import free_ports
from e2e.node.local_node import LocalNode
from e2e.programs import manifests

PODS: Final = f"/api/v1/namespaces/{manifests.NAMESPACE}/pods"
DAEMON_SETS: Final = f"/apis/apps/v1/namespaces/{manifests.NAMESPACE}/daemonsets"
_NODES: Final = "/api/v1/nodes"
_LISTENS: Final = {"Deployment": "GPUSHARE_SCHEDULER_LISTEN", "DaemonSet": "GPUSHARE_DEVICE_PLUGIN_LISTEN"}
_LOOPBACK: Final = "127.0.0.1"
_CARDS: Final = "gpushare-simulated-cards"
_CARDS_AT: Final = "/etc/gpushare-cards"
READY_WITHIN_S: Final = 180.0


def documents(node: LocalNode, cards_mib: Sequence[int], rendered: Sequence[Json] = ()) -> list[Json]:
    """All of `deploy/manifests`, in order, as this node can run it. rendered: of other values, in their place."""
    shipped = rendered or [document for file in manifests.installed() for document in manifests.documents(file)]
    installed = copy.deepcopy(list(shipped))
    for document in installed:
        if document["kind"] in _LISTENS:
            for_our_network(document, node.cluster.url)
        if document["kind"] == "Deployment":
            document["spec"] |= {"replicas": 1}
        if document["kind"] == "DaemonSet":
            _with_simulated_cards(document)
    cards = {"nodes": [{"name": node.name, "cards": [{"model": "SIM", "memoryMiB": mib} for mib in cards_mib]}]}
    simulated: Json = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": _CARDS, "namespace": manifests.NAMESPACE},
        "data": {"cards.yaml": commands.as_yaml(cards)},
    }
    return [simulated, *installed]


async def install(admin: Admin, node: LocalNode, cards_mib: Sequence[int], rendered: Sequence[Json] = ()) -> None:
    """Apply it all and label the node, as `kubectl` does. Raises UnexpectedAnswer."""
    for document in documents(node, cards_mib, rendered):
        await manifests.apply(admin, document)
    done(await admin.patch(f"{_NODES}/{node.name}", {"metadata": {"labels": {"gpushare": "true"}}}))


async def ready(admin: Admin) -> tuple[Json, Json]:
    """Wait until the kubelet says that both are ready: the scheduler's pod, the device plugin's. Raises NotSeen."""
    found = []
    for name in (manifests.SCHEDULER, manifests.PLUGIN):
        query = {"labelSelector": f"app.kubernetes.io/name={name}"}
        found.append(await seen(admin, PODS, _is_ready, query, within_s=READY_WITHIN_S))
    return found[0], found[1]


def _is_ready(pod: Json) -> bool:
    conditions = pod["status"].get("conditions", [])
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)


def for_our_network(workload: Json, url: str) -> None:
    """Give its pods the network of the machine, a port that nobody has if any, and the address of the API server."""
    (port,) = free_ports(1)
    server = urlsplit(url)
    pod = workload["spec"]["template"]["spec"]
    pod["hostNetwork"] = True
    (container,) = pod["containers"]
    container.setdefault("env", []).extend(
        {"name": name, "value": value}
        for name, value in {
            _LISTENS[workload["kind"]]: f"{_LOOPBACK}:{port}",
            "KUBERNETES_SERVICE_HOST": str(server.hostname),
            "KUBERNETES_SERVICE_PORT": str(server.port),
        }.items()
    )
    if "ports" not in container:
        return
    container["ports"][0]["containerPort"] = port
    for probe in ("livenessProbe", "readinessProbe"):
        container[probe]["httpGet"]["host"] = _LOOPBACK


def _with_simulated_cards(workload: Json) -> None:
    """Mount the cluster file."""
    pod = workload["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    container["env"].append({"name": "GPUSHARE_DEVICE_PLUGIN_SIMULATE", "value": f"{_CARDS_AT}/cards.yaml"})
    container["volumeMounts"].append({"name": "cards", "mountPath": _CARDS_AT, "readOnly": True})
    pod["volumes"].append({"name": "cards", "configMap": {"name": _CARDS}})
