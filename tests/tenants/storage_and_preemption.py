"""Attacks by claims that never get a volume, by PodDisruptionBudgets, and by priorities."""

from collections.abc import Iterator
from typing import Any, Final

from tests.support.volumes import with_claims
from tests.tenants.attack import Attack, Manifest, Tenant, pod

_FITS_NOWHERE: Final = 1_000
_CLAIMS_OF_A_POD: Final = 64
_CARD: Final = 79
_CARDS: Final = 8
_OF_A_NODE: Final = 128_000
_STAYS: Final = "8"


async def many_claims(tenant: Tenant) -> None:
    """Ten thousand claims on a few pods, each of which waits for its volumes with a card in hand."""
    for number in range(tenant.many(156)):
        names = [f"c-{number}-{claim}" for claim in range(_CLAIMS_OF_A_POD)]
        await tenant.claims(names)
        await tenant.creates([pod(f"p-{number}", 1, **with_claims(*names))])


async def claims_without_volumes(tenant: Tenant) -> None:
    """Each pod is placed, and waits for a volume that nobody makes."""
    for number in range(tenant.many(10_000)):
        await tenant.claims([f"c-{number}"])
        await tenant.creates([pod(f"p-{number}", 1, **with_claims(f"c-{number}"))])


async def claims_that_come_one_by_one(tenant: Tenant) -> None:
    """Pods whose claims come one by one: each new one is looked at, and the next is missing."""
    names = [f"c-{claim}" for claim in range(_CLAIMS_OF_A_POD)]
    await tenant.creates(pod(f"p-{number}", 1, **with_claims(*names)) for number in range(tenant.many(2_000)))
    await tenant.claims(names)


async def claim_churn(tenant: Tenant) -> None:
    """Claims that change all the time, while a hundred pods that fit nowhere wait with them."""
    names = [f"c-{claim}" for claim in range(_CLAIMS_OF_A_POD)]
    await tenant.claims(names)
    await tenant.creates(pod(f"p-{number}", _FITS_NOWHERE, **with_claims(*names)) for number in range(100))
    for number in range(tenant.many(5_000)):
        await tenant.annotates_claim(names[number % len(names)], {"example.com/text": str(number)})


def _labels(number: int, count: int = 64) -> dict[str, str]:
    return {f"k{label}": "v" for label in range(count)} | {"own": str(number)}


async def _low_priority(tenant: Tenant, nodes: int, per_node: int) -> None:
    """Pods by hand on some nodes that may be made to go; and one on each that may not, so that it would be in vain."""
    for number in range(nodes * per_node):
        node = tenant.node(number % nodes)
        low = pod(f"low-{number}", priority=-10, node=node, labels=_labels(number), requests={"cpu": "500m"})
        await tenant.creates([low])
    await tenant.creates(
        pod(f"stays-{number}", node=tenant.node(number), requests={"cpu": _STAYS}) for number in range(nodes)
    )


async def budgets(tenant: Tenant) -> None:
    """Ten thousand of them, each with a long selector, and pods that would make others go."""
    await _low_priority(tenant, 4, 32)
    for number in range(tenant.many(10_000)):
        await tenant.protects(f"b-{number}", _labels(number, 500))
    await tenant.creates(_preemptors(tenant, tenant.many(1_000), 4))


async def budgets_that_match(tenant: Tenant) -> None:
    """As many as are read, each of which is long and protects every pod on four nodes; pods make others go there."""
    shared = {f"k{label}": "v" for label in range(64)}
    for number in range(100):
        await tenant.protects(f"b-{number}", shared)
    await _low_priority(tenant, 4, 128)
    await tenant.creates(_preemptors(tenant, tenant.many(1_000), 4))


async def budget_churn(tenant: Tenant) -> None:
    """What budgets allow changes all the time, while pods wait that nobody's leaving would help."""
    for number in range(20):
        await tenant.protects(f"b-{number}", {"k0": "v"})
    await _low_priority(tenant, 30, 12)
    await tenant.creates(_preemptors(tenant, tenant.many(500), 30))
    for number in range(tenant.many(5_000)):
        await tenant.allows(f"b-{number % 20}", number % 7)


def _preemptors(tenant: Tenant, count: int, nodes: int) -> Iterator[Manifest]:
    """No two ask the same, and each fits on none of the nodes, whoever goes."""
    for number in range(count):
        asked = {"cpu": f"{_OF_A_NODE - number}m"}
        yield pod(f"high-{number}", 1, priority=-5, requests=asked, affinity=_on(tenant, nodes))


def _on(tenant: Tenant, nodes: int) -> dict[str, Any]:
    """A node affinity to so many nodes."""
    expressions = ({"key": "metadata.name", "operator": "In", "values": [tenant.node(n)]} for n in range(nodes))
    terms = [{"matchFields": [each]} for each in expressions]
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}


async def low_priorities(tenant: Tenant) -> None:
    """Pods of low priority on every node, and pods of every template that could make them go: half of them may not."""
    await _low_priority(tenant, 60, 12)
    for number, made in enumerate(_preemptors(tenant, tenant.many(3_000), 60)):
        if number % 2:
            made["spec"] |= {"preemptionPolicy": "Never"}  # type: ignore[operator]
        await tenant.creates([made])


async def victims_that_stay(tenant: Tenant) -> None:
    """Pods of low priority fill the cards of some nodes and never end; others make them go, again and again."""
    nodes = tenant.many(60)
    affinity = _on(tenant, nodes)
    for number in range(nodes * _CARDS):
        made = pod(f"low-{number}", _CARD, priority=-10, affinity=affinity)
        made["metadata"] |= {"finalizers": ["example.com/never"]}  # type: ignore[operator]
        await tenant.creates([made])
    await tenant.waits(2)
    await tenant.creates(
        pod(f"high-{number}", _CARD - number % 8, priority=-5, affinity=affinity)
        for number in range(tenant.many(3_000))
    )


ATTACKS: Final = (
    Attack(name="pods of 64 claims that never get a volume", acts=many_claims, scale=0.05),
    Attack(name="10,000 pods that wait for a volume with a card in hand", acts=claims_without_volumes, scale=0.05),
    Attack(name="2,000 pods whose 64 claims come one by one", acts=claims_that_come_one_by_one, scale=0.05),
    Attack(name="claims of waiting pods that change all the time", acts=claim_churn, scale=0.05),
    Attack(name="10,000 PodDisruptionBudgets of 500 labels", acts=budgets, scale=0.05),
    Attack(name="PodDisruptionBudgets of 64 labels that match all victims", acts=budgets_that_match, scale=0.05),
    Attack(
        name="PodDisruptionBudgets that change all the time",
        acts=budget_churn,
        server="lets a tenant change how many of its pods are ready, and so what a controller writes",
    ),
    Attack(name="3,000 templates that could make pods of low priority go", acts=low_priorities, scale=0.05),
    Attack(name="preemption of pods that never end", acts=victims_that_stay, scale=0.05),
)
