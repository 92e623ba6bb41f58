"""NodeAffinity, NodeName and NodePorts."""

from random import Random
from typing import Any, Final

from tests.differential.manifests import HOSTNAME, Manifest, Scenario, container, expression, node, pod

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
    there = [each["metadata"]["name"] for each in made.objects]

    def named(operator: str, *values: str) -> Manifest:
        return {"key": "metadata.name", "operator": operator, "values": list(values)}

    def asking(*terms: Manifest) -> Manifest:
        wanted = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": list(terms)}}
        return {"affinity": {"nodeAffinity": wanted}}

    one, other = rng.sample(there, 2)
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
