"""What nodes have: labels, names, ports, taints, cordons, images and declared features, and what pods want of it."""

from random import Random
from typing import Any, Final

from tests.differential.manifests import HOSTNAME, Manifest, Scenario, container, expression, node, pod, taint

_ZONES: Final = ("z1", "z2", "z3")
_DISKS: Final = ("ssd", "hdd")
_CARDS: Final = ("1", "4", "8", "08", "4.0", "many")
_ADDRESSES: Final = ("", "", "0.0.0.0", "127.0.0.1", "10.0.0.1", "10.0.0.2")  # noqa: S104 - what a pod may ask
_PROTOCOLS: Final = ("TCP", "TCP", "UDP", "SCTP")
_PORTS: Final = (80, 443, 8080)


def node_affinity(rng: Random, name: str) -> Scenario:
    """Selectors and terms over labels, with each operator; some labels are missing, some numbers are none."""
    made = Scenario(name, _labelled(rng, rng.randint(3, 8)))
    made.probes = [pod(f"required{number}", **_required(rng)) for number in range(5)]
    made.probes += [pod(f"preferred{number}", affinity={"nodeAffinity": _preferred(rng)}) for number in range(3)]
    made.probes.append(
        pod("both", nodeSelector=_selector(rng), affinity={"nodeAffinity": {**_terms(rng), **_preferred(rng)}})
    )
    return made


def node_fields(rng: Random, name: str) -> Scenario:
    """Terms over `metadata.name`, as a DaemonSet's pods have them."""
    made = Scenario(name, _labelled(rng, rng.randint(3, 6)))

    def named(operator: str, *values: str) -> Manifest:
        return {"key": "metadata.name", "operator": operator, "values": list(values)}

    def asking(*terms: Manifest) -> Manifest:
        wanted = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": list(terms)}}
        return {"affinity": {"nodeAffinity": wanted}}

    one, other = rng.sample(made.nodes(), 2)
    labelled = {"matchExpressions": [expression("disk", "In", rng.choice(_DISKS))]}
    made.probes = [
        pod("in", **asking({"matchFields": [named("In", one)]})),
        pod("not-in", **asking({"matchFields": [named("NotIn", one)]})),
        pod("neither", **asking({"matchFields": [named("NotIn", one), named("NotIn", other)]})),
        pod("either", **asking({"matchFields": [named("In", one)]}, {"matchFields": [named("In", other)]})),
        pod("conflict", **asking({"matchFields": [named("In", one), named("In", other)]})),
        pod("with-label", **asking({"matchFields": [named("In", one)], **labelled})),
        pod("without-label", **asking({"matchFields": [named("NotIn", one)], **labelled})),
        pod("or-label", **asking({"matchFields": [named("In", one)]}, labelled)),
        pod("unknown", **asking({"matchFields": [named("In", "nowhere")]})),
    ]
    return made


def node_name(rng: Random, name: str) -> Scenario:
    """Pods that name their node, which kube-scheduler judges as any other."""
    made = Scenario(name, _labelled(rng, rng.randint(2, 5)))
    chosen = rng.choice(made.objects)["metadata"]["name"]
    made.probes = [pod("named", nodeName=chosen), pod("unknown", nodeName="nowhere"), pod("free")]
    made.probes.append(pod("elsewhere", nodeName=chosen, nodeSelector={"disk": rng.choice(_DISKS)}))
    return made


def node_ports(rng: Random, name: str) -> Scenario:
    """Ports of the node by address and protocol, of containers and sidecars; init containers take none."""
    there = [node(f"n{number}") for number in range(rng.randint(2, 5))]
    made = Scenario(name, there)
    for number in range(rng.randint(3, 9)):
        on = rng.choice(there)["metadata"]["name"]
        made.objects.append(pod(f"r{number}", on=on, **_with_ports(rng)))
    gone = pod("gone", on="n0", status={"phase": "Succeeded"}, **_with_ports(rng))
    made.objects.append(gone)
    made.probes = [pod(f"p{number}", **_with_ports(rng)) for number in range(8)]
    return made


def _labelled(rng: Random, count: int) -> list[Manifest]:
    found = []
    for number in range(count):
        labels = {"zone": rng.choice(_ZONES), "disk": rng.choice(_DISKS), "cards": rng.choice(_CARDS)}
        kept = {key: value for key, value in labels.items() if rng.random() < 0.8}
        found.append(node(f"n{number}", labels=kept))
    return found


def _selector(rng: Random) -> dict[str, str]:
    wanted = {"zone": rng.choice(_ZONES), "disk": rng.choice(_DISKS), HOSTNAME: "n1"}
    return {key: wanted[key] for key in rng.sample(sorted(wanted), rng.choice((1, 1, 2)))}


def _required(rng: Random) -> Manifest:
    if rng.random() < 0.3:
        return {"nodeSelector": _selector(rng)}
    asked: Manifest = {"affinity": {"nodeAffinity": _terms(rng)}}
    if rng.random() < 0.2:
        asked["nodeSelector"] = _selector(rng)
    return asked


def _terms(rng: Random) -> Manifest:
    terms = [{"matchExpressions": _expressions(rng)} for _ in range(rng.choice((1, 1, 2, 3)))]
    if rng.random() < 0.1:
        terms.append({})
    return {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}


def _preferred(rng: Random) -> Manifest:
    terms = [
        {"weight": rng.choice((1, 2, 5, 33, 50, 100)), "preference": {"matchExpressions": _expressions(rng)}}
        for _ in range(rng.randint(1, 4))
    ]
    if rng.random() < 0.1:
        terms.append({"weight": 7, "preference": {}})
    return {"preferredDuringSchedulingIgnoredDuringExecution": terms}


def _expressions(rng: Random) -> list[Manifest]:
    return [_expression(rng) for _ in range(rng.choice((1, 1, 1, 2)))]


def _expression(rng: Random) -> Manifest:
    key, values = rng.choice((("zone", _ZONES), ("disk", _DISKS), ("cards", _CARDS)))
    match rng.choice(("In", "In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt")):
        case "In" | "NotIn" as operator:
            return expression(key, operator, *rng.sample(values, rng.randint(1, len(values) - 1)))
        case "Exists" | "DoesNotExist" as operator:
            return expression(key, operator)
        case operator:
            # A bound that is no number is admitted, and matches nothing.
            return expression("cards", operator, rng.choice(("0", "3", "4", "-5")))


def _with_ports(rng: Random) -> Manifest:
    made: Manifest = {"containers": [container("c", ports=_ports(rng, rng.choice((0, 1, 1, 2))))]}
    if rng.random() < 0.3:
        kind: dict[str, Any] = {"restartPolicy": "Always"} if rng.random() < 0.5 else {}
        made["initContainers"] = [container("i", ports=_ports(rng, 1), **kind)]
    return made


def _ports(rng: Random, count: int) -> list[Manifest]:
    found = {}
    for _ in range(count):
        address, protocol, number = rng.choice(_ADDRESSES), rng.choice(_PROTOCOLS), rng.choice(_PORTS)
        port: Manifest = {"containerPort": number, "hostPort": number, "protocol": protocol}
        if address:
            port["hostIP"] = address
        found[address, protocol, number] = port
    if rng.random() < 0.2:
        found["", "TCP", 0] = {"containerPort": 9000}
    return list(found.values())


_KEYS = ("gpu", "team", "spot")
_VALUES = ("", "a", "b")
_EFFECTS = ("NoSchedule", "NoExecute", "PreferNoSchedule", "PreferNoSchedule")
_UNSCHEDULABLE = "node.kubernetes.io/unschedulable"


def taints(rng: Random, name: str) -> Scenario:
    """Nodes with up to four taints, hard and soft; pods that tolerate some of them in every way there is."""
    made = Scenario(name)
    made.objects = [node(f"n{number}", taints=_taints(rng)) for number in range(rng.randint(3, 7))]
    made.probes = [pod(f"p{number}", tolerations=_tolerations(rng)) for number in range(7)]
    made.probes.append(pod("plain"))
    return made


def unschedulable(rng: Random, name: str) -> Scenario:
    """Cordoned nodes, with and without the taint that the node controller adds."""
    made = Scenario(name)
    for number in range(rng.randint(2, 6)):
        cordoned = rng.random() < 0.6
        tainted = [taint(_UNSCHEDULABLE, "NoSchedule")] if cordoned and rng.random() < 0.4 else []
        made.objects.append(node(f"n{number}", unschedulable=cordoned, taints=tainted))
    made.probes = [
        pod("plain"),
        pod("by-key", tolerations=[{"key": _UNSCHEDULABLE, "operator": "Exists", "effect": "NoSchedule"}]),
        pod("any-effect", tolerations=[{"key": _UNSCHEDULABLE, "operator": "Exists"}]),
        pod("everything", tolerations=[{"operator": "Exists"}]),
        pod("other-effect", tolerations=[{"key": _UNSCHEDULABLE, "operator": "Exists", "effect": "NoExecute"}]),
        pod("empty-value", tolerations=[{"key": _UNSCHEDULABLE, "operator": "Equal", "effect": "NoSchedule"}]),
        pod("with-value", tolerations=[{"key": _UNSCHEDULABLE, "operator": "Equal", "value": "true"}]),
    ]
    return made


def _taints(rng: Random) -> list[Manifest]:
    found = {}
    for _ in range(rng.choice((0, 0, 1, 1, 2, 3, 4))):
        key, effect = rng.choice(_KEYS), rng.choice(_EFFECTS)
        found[key, effect] = taint(key, effect, rng.choice(_VALUES))
    return list(found.values())


def _tolerations(rng: Random) -> list[Manifest]:
    return [_toleration(rng) for _ in range(rng.choice((1, 1, 2, 3, 4)))]


def _toleration(rng: Random) -> Manifest:
    made: Manifest = {}
    if rng.random() < 0.9:
        made["key"] = rng.choice(_KEYS)
    if "key" not in made or rng.random() < 0.4:
        made["operator"] = "Exists"
    else:
        if rng.random() < 0.5:
            made["operator"] = "Equal"
        if value := rng.choice(_VALUES):
            made["value"] = value
    if rng.random() < 0.7:
        made["effect"] = rng.choice(_EFFECTS)
        if made["effect"] == "NoExecute" and rng.random() < 0.3:
            made["tolerationSeconds"] = 300
    return made


_MIB: Final = 1024 * 1024
_IMAGES: Final = ("registry.example/web", "registry.example/web:latest", "registry.example/train:2", "db", "tool:1")
_RESTARTS: Final = "RestartAllContainersOnContainerExits"
_HOST_USERS: Final = "UserNamespacesHostNetworkSupport"


def images(rng: Random, name: str) -> Scenario:
    """Images of many sizes on some of the nodes, under one name or several."""
    made = Scenario(name)
    sizes = {image: rng.choice((5, 22, 30, 150, 700, 1500, 12_000)) * _MIB for image in _IMAGES}
    for number in range(rng.randint(3, 8)):
        each = node(f"n{number}")
        each["status"]["images"] = [
            {"names": _names(image), "sizeBytes": sizes[image]} for image in _IMAGES if rng.random() < 0.5
        ]
        made.objects.append(each)
    for number in range(7):
        asked = [container(f"c{one}") | {"image": rng.choice(_IMAGES)} for one in range(rng.choice((1, 1, 2, 3)))]
        more: Manifest = {"nodeSelector": {"kubernetes.io/hostname": "n0"}} if number == 6 else {}
        if rng.random() < 0.3:
            more["initContainers"] = [container("i") | {"image": rng.choice(_IMAGES)}]
        made.probes.append(pod(f"p{number}", containers=asked, **more))
    volumes = [{"name": "v", "image": {"reference": rng.choice(_IMAGES), "pullPolicy": "IfNotPresent"}}]
    made.probes.append(pod("mounts-an-image", volumes=volumes))
    return made


def declared_features(rng: Random, name: str) -> Scenario:
    """Nodes that declare what their kubelet can do, and pods that need some of it."""
    made = Scenario(name)
    for number in range(rng.randint(2, 6)):
        each = node(f"n{number}")
        declared = [feature for feature in (_HOST_USERS, _RESTARTS) if rng.random() < 0.5]
        if declared:
            each["status"]["declaredFeatures"] = sorted(declared)
        made.objects.append(each)
    rule = {"action": "RestartAllContainers", "exitCodes": {"operator": "In", "values": [88]}}
    restarts: Manifest = {"restartPolicy": "Never", "restartPolicyRules": [rule]}
    plain: Manifest = {"restartPolicy": "Never", "restartPolicyRules": [rule | {"action": "Restart"}]}
    made.probes = [
        pod("plain"),
        pod("restarts-all", containers=[container("c", **restarts)], restartPolicy="Never"),
        pod("restarts-one", containers=[container("c", **plain)], restartPolicy="Never"),
        pod("of-init", initContainers=[container("i", **restarts)], restartPolicy="Never"),
        pod("host-users", hostNetwork=True, hostUsers=False),
        pod("on-one", containers=[container("c", **restarts)], nodeSelector={"kubernetes.io/hostname": "n0"}),
        pod("of-two", containers=[container("c"), container("d", **restarts)]),
    ]
    return made


def _names(image: str) -> list[str]:
    tagged = image if ":" in image else f"{image}:latest"
    return [tagged, f"{image.partition(':')[0]}@sha256:{'0' * 64}"]
