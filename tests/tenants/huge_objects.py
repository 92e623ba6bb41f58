"""Attacks by single objects that are as large as an API server takes them."""

import json
from typing import Final

from config.protocol import names
from tests.tenants.attack import Attack, Tenant, pod

# Of all annotations of an object. Source: apimachinery/pkg/api/validation/objectmeta.go, TotalAnnotationSizeLimitB.
_ANNOTATIONS_BYTES: Final = 256 * 1024 - 1024
_HOSTNAME: Final = "kubernetes.io/hostname"


async def resource_names(tenant: Tenant) -> None:
    """By hand on a node, where each is booked, and on one that waits."""
    requests = {f"example.com/r{number:05d}": "1" for number in range(tenant.many(15_000))}
    for number in range(4):
        await tenant.creates([pod(f"bound-{number}", node=tenant.node(number), requests=requests)])
        await tenant.creates([pod(f"waits-{number}", requests=requests | {"example.com/own": str(number + 1)})])


async def invented_cards(tenant: Tenant) -> None:
    """Each share on a card of its own that no node has."""
    for number in range(4):
        count = tenant.many(4_000)
        cards = {str(index): f"GPU-invented-{number}-{index}" for index in range(count)}
        shares = {"0": dict.fromkeys(cards, 1)}
        written = {
            names.ALLOCATION: json.dumps(shares, separators=(",", ":")),
            names.INIT_ALLOCATION: "{}",
            names.CARDS: json.dumps(cards, separators=(",", ":")),
        }
        await tenant.creates([pod(f"p-{number}", count, node=tenant.node(number), annotations=written)])


async def affinity_terms(tenant: Tenant) -> None:
    """None of them matches."""
    for number in range(10):
        terms = [
            {"matchExpressions": [{"key": f"k{term % 50}", "operator": "In", "values": [f"{number}-{term}"]}]}
            for term in range(tenant.many(5_000))
        ]
        required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
        await tenant.creates([pod(f"p-{number}", affinity={"nodeAffinity": required})])


async def values_of_a_term(tenant: Tenant) -> None:
    """One expression of a node affinity that names thousands of hosts, and thousands of weighted ones."""
    for number in range(10):
        hosts = [f"no-such-{number}-{host}" for host in range(tenant.many(10_000))]
        term = {"matchExpressions": [{"key": _HOSTNAME, "operator": "In", "values": hosts}]}
        preferred = [
            {"weight": 1, "preference": {"matchExpressions": [{"key": _HOSTNAME, "operator": "In", "values": [host]}]}}
            for host in hosts[: tenant.many(2_000)]
        ]
        affinity = {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]},
            "preferredDuringSchedulingIgnoredDuringExecution": preferred,
        }
        await tenant.creates([pod(f"p-{number}", affinity={"nodeAffinity": affinity})])


async def node_selectors(tenant: Tenant) -> None:
    """Thousands of labels that a node should have."""
    for number in range(10):
        selector = {f"k{label}": str(number) for label in range(tenant.many(10_000))}
        await tenant.creates([pod(f"p-{number}", nodeSelector=selector)])


async def annotations(tenant: Tenant) -> None:
    """On pods that wait."""
    for number in range(tenant.many(200)):
        await tenant.creates([pod(f"p-{number}", 1_000, annotations={"example.com/text": text(number)})])


async def host_ports(tenant: Tenant) -> None:
    """Thousands on one pod, and on the pods of one node that hold them."""
    for number in range(10):
        ports = [{"containerPort": port, "hostPort": port} for port in range(1 + number, tenant.many(5_000) + number)]
        containers = [{"name": "c0", "ports": ports}]
        await tenant.creates([pod(f"bound-{number}", node=tenant.node(number), containers=containers)])
        await tenant.creates([pod(f"waits-{number}", containers=containers)])


async def tolerations(tenant: Tenant) -> None:
    """Of taints that nobody has."""
    for number in range(10):
        tolerated = [{"key": f"k{key}", "operator": "Exists"} for key in range(number, tenant.many(10_000) + number)]
        await tenant.creates([pod(f"p-{number}", tolerations=tolerated)])


async def containers(tenant: Tenant) -> None:
    """Each asks for a unit."""
    for number in range(10):
        await tenant.creates([pod(f"p-{number}", [1] * (tenant.many(2_000) + number))])


async def containers_on_nodes(tenant: Tenant) -> None:
    """The same by hand on a node, where each counts."""
    for number in range(10):
        await tenant.creates([pod(f"p-{number}", [1] * (tenant.many(2_000) + number), node=tenant.node(number))])


async def amounts(tenant: Tenant) -> None:
    """No two containers ask for the same amount of anything, on nodes and waiting."""
    resources = ("cpu", "memory", "ephemeral-storage", names.GPU_MEM, names.GPU_CORE)
    for number in range(10):
        asked = (
            {name: f"{1 + one * 5 + index}.{number}m" for index, name in enumerate(resources)}
            for one in range(tenant.many(2_000))
        )
        many = [{"name": f"c{one}", "resources": {"requests": own, "limits": own}} for one, own in enumerate(asked)]
        await tenant.creates([pod(f"p-{number}", containers=many, node=tenant.node(number) if number % 2 else "")])


async def init_containers(tenant: Tenant) -> None:
    """One after the other, each with an ask of its own."""
    for number in range(10):
        asks = [1 + index % 70 for index in range(tenant.many(2_000) + number)]
        await tenant.creates([pod(f"p-{number}", 1, init_gpu_mem=asks)])


async def card_selectors(tenant: Tenant) -> None:
    """By UUIDs and models that nobody has, and by labels of other pods."""
    for number in range(10):
        count = tenant.many(4_000)
        uuids = ",".join(f"!GPU-{number}-{card}" for card in range(count))
        models = ",".join(f"model-{number}-{card}" for card in range(count))
        affinity = ",".join(f"k{key}!=v{number}" for key in range(tenant.many(500)))
        for kind, key, value in (
            ("uuids", names.CARD_UUIDS, uuids),
            ("models", names.CARD_MODELS, models),
            ("affinity", names.CARD_AFFINITY, affinity),
            ("anti", names.CARD_ANTI_AFFINITY, affinity),
        ):
            await tenant.creates([pod(f"{kind}-{number}", 1, annotations={key: value})])


async def labels(tenant: Tenant) -> None:
    """Of pods that run on cards, where card affinity and anti-affinity read them."""
    for number in range(20):
        many = {f"k{label}": f"v{number}" for label in range(tenant.many(10_000))}
        await tenant.creates([pod(f"p-{number}", 1, labels=many, node=tenant.node(number))])


async def gpu_counts(tenant: Tenant) -> None:
    """More cards than anybody has."""
    for number in range(tenant.many(100)):
        count = (10_000, 2**31, 10**18)[number % 3] + number
        await tenant.creates([pod(f"p-{number}", 10_000 + number, annotations={names.GPU_COUNT: str(count)})])


async def volumes(tenant: Tenant) -> None:
    """Thousands of them, each of a kind that has a rule."""
    for number in range(10):
        many = [
            {"name": f"v{volume}", "persistentVolumeClaim": {"claimName": f"c{volume}"}}
            for volume in range(tenant.many(5_000))
        ]
        await tenant.creates([pod(f"p-{number}", volumes=many)])


def text(number: int) -> str:
    """As much as the annotations of an object may hold, another one for each number."""
    return f"{number:08d}" * (_ANNOTATIONS_BYTES // 8)


ATTACKS: Final = (
    Attack(name="pods with 15,000 resource names, on nodes and waiting", acts=resource_names, scale=1),
    Attack(
        name="a pod on a node whose annotations name 4,000 cards that nobody has",
        acts=invented_cards,
        scale=1,
        server="refused by the policy gpushare-allocation",
    ),
    Attack(name="a node affinity of 5,000 terms", acts=affinity_terms, scale=1),
    Attack(name="a node affinity that names 10,000 hosts, and weighs 2,000", acts=values_of_a_term, scale=1),
    Attack(name="a node selector of 10,000 labels", acts=node_selectors, scale=1),
    Attack(name="annotations of 256 KiB on 200 pods", acts=annotations),
    Attack(name="pods with 5,000 host ports each", acts=host_ports, scale=1),
    Attack(name="10,000 tolerations", acts=tolerations, scale=1),
    Attack(name="a pod of 2,000 containers, each with GPU memory", acts=containers, scale=1),
    Attack(name="pods of 2,000 containers on nodes", acts=containers_on_nodes, scale=1),
    Attack(name="pods of 2,000 containers, no two of which ask the same", acts=amounts, scale=1),
    Attack(name="2,000 init containers, one after the other", acts=init_containers, scale=1),
    Attack(name="card selectors of thousands of entries", acts=card_selectors, scale=1),
    Attack(name="running pods with 10,000 labels", acts=labels, scale=1),
    Attack(name="pods that ask for more cards than there are numbers", acts=gpu_counts),
    Attack(name="5,000 volume claims on a pod", acts=volumes, scale=1),
)
