"""Attacks by claims that never get a volume, by PodDisruptionBudgets, and by priorities."""

from typing import Any, Final

from tests.support.volumes import with_claims
from tests.tenants.attack import Attack, Tenant, pod

_FITS_NOWHERE: Final = 1_000
_CLAIMS_OF_A_POD: Final = 64
_CARD: Final = 79
_CARDS: Final = 8


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


async def claims_that_are_not_there(tenant: Tenant) -> None:
    """Pods whose claims come one by one: each new one is looked at, and the next is missing."""
    names = [f"c-{claim}" for claim in range(_CLAIMS_OF_A_POD)]
    await tenant.creates(pod(f"p-{number}", 1, **with_claims(*names)) for number in range(tenant.many(2_000)))
    await tenant.claims(names)


async def claim_churn(tenant: Tenant) -> None:
    """Claims that change all the time, while hundreds of pods that fit nowhere wait with them."""
    names = [f"c-{claim}" for claim in range(_CLAIMS_OF_A_POD)]
    await tenant.claims(names)
    await tenant.creates(pod(f"p-{number}", _FITS_NOWHERE, **with_claims(*names)) for number in range(300))
    for number in range(tenant.many(5_000)):
        await tenant.annotates_claim(names[number % len(names)], {"example.com/text": str(number)})


def _labels(number: int, count: int = 64) -> dict[str, str]:
    return {f"k{label}": "v" for label in range(count)} | {"own": str(number)}


async def _low_priority(tenant: Tenant, nodes: int, per_node: int, **options: Any) -> None:  # noqa: ANN401 - as `pod`
    """Pods by hand on some nodes, which take most of the memory of their cards."""
    for number in range(nodes * per_node):
        node = tenant.node(number % nodes)
        await tenant.creates([pod(f"low-{number}", priority=-10, node=node, labels=_labels(number), **options)])


async def budgets(tenant: Tenant) -> None:
    """Ten thousand of them, each with a long selector, and pods that would make others go."""
    await _low_priority(tenant, 4, 32, requests={"cpu": "2"})
    for number in range(tenant.many(10_000)):
        await tenant.protects(f"b-{number}", _labels(number, 500))
    await tenant.creates(_preemptors(tenant.many(1_000)))


async def budgets_that_match(tenant: Tenant) -> None:
    """As many as are read, each of which is long and protects every pod on four nodes; pods make others go there."""
    shared = {f"k{label}": "v" for label in range(64)}
    for number in range(100):
        await tenant.protects(f"b-{number}", shared)
    await _low_priority(tenant, 4, 128, requests={"cpu": "500m"})
    await tenant.creates(_preemptors(tenant.many(1_000)))


async def budget_churn(tenant: Tenant) -> None:
    """What budgets allow changes all the time, while pods wait that nobody's leaving would help."""
    for number in range(20):
        await tenant.protects(f"b-{number}", {"k0": "v"})
    await _low_priority(tenant, 300, 4, requests={"cpu": "500m"})
    await tenant.creates(_preemptors(tenant.many(500)))
    for number in range(tenant.many(5_000)):
        await tenant.allows(f"b-{number % 20}", number % 7)


def _preemptors(count: int, **options: Any) -> Any:  # noqa: ANN401 - as `pod`
    """No two ask the same, and all need more cpu than any node has: but only a little more."""
    return (
        pod(f"high-{number}", 1, priority=-5, requests={"cpu": f"{128_000 + number}m"}, **options)
        for number in range(count)
    )


async def low_priorities(tenant: Tenant) -> None:
    """Pods of low priority on every node, and pods of every template that could make them go: half of them may not."""
    await _low_priority(tenant, 300, 10, requests={"cpu": "500m"})
    for number in range(tenant.many(3_000)):
        policy = {"preemptionPolicy": "Never"} if number % 2 else {}
        await tenant.creates(
            [pod(f"high-{number}", _CARD, requests={"cpu": f"{60_000 + number}m"}, priority=-5, **policy)]
        )


async def victims_that_stay(tenant: Tenant) -> None:
    """Pods of low priority fill the cards of the cluster and never end; others make them go."""
    for number in range(tenant.many(2_400)):
        made = pod(f"low-{number}", _CARD, priority=-10)
        made["metadata"] |= {"finalizers": ["example.com/never"]}  # type: ignore[operator]
        await tenant.creates([made])
    await tenant.waits(2)
    await tenant.creates(pod(f"high-{number}", _CARD - number % 8, priority=-5) for number in range(tenant.many(3_000)))


ATTACKS: Final = (
    Attack(name="pods of 64 claims that never get a volume", acts=many_claims, scale=1),
    Attack(name="10,000 pods that wait for a volume with a card in hand", acts=claims_without_volumes),
    Attack(name="2,000 pods whose 64 claims come one by one", acts=claims_that_are_not_there),
    Attack(name="claims of waiting pods that change all the time", acts=claim_churn),
    Attack(name="10,000 PodDisruptionBudgets of 500 labels", acts=budgets),
    Attack(name="PodDisruptionBudgets of 64 labels that match all victims", acts=budgets_that_match),
    Attack(name="PodDisruptionBudgets that change all the time", acts=budget_churn),
    Attack(name="3,000 templates that could make pods of low priority go", acts=low_priorities),
    Attack(name="preemption of pods that never end", acts=victims_that_stay),
)
