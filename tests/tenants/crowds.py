"""Attacks by the number of objects, each of them small."""

import json
from typing import Any, Final

from config.protocol import names
from scheduler.pods.gpu_request import ResourceNames
from scheduler.state.cards.node_inventory import read_inventory
from tests.tenants.attack import Attack, Tenant, pod

_HOSTNAME: Final = "kubernetes.io/hostname"
_FITS_NOWHERE: Final = 1_000
MOST_TERMS: Final = 64


async def templates(tenant: Tenant) -> None:
    """No two ask the same."""
    await tenant.creates(
        pod(f"p-{number}", _FITS_NOWHERE + number, requests={"cpu": f"{1 + number}m"})
        for number in range(tenant.many(10_000))
    )


async def bound_templates(tenant: Tenant) -> None:
    """No two ask the same, and all find a place."""
    await tenant.creates(
        pod(f"p-{number}", 1, requests={"cpu": f"{1 + number}m"}) for number in range(tenant.many(10_000))
    )


async def fits_nowhere(tenant: Tenant) -> None:
    """One template, by the thousand."""
    await tenant.creates(pod(f"p-{number}", _FITS_NOWHERE) for number in range(tenant.many(10_000)))


async def in_turn(tenant: Tenant) -> None:
    """A crowd waits for a place that a pod takes and leaves, again and again."""
    node = tenant.node(0)
    whole = {"nodeSelector": {_HOSTNAME: node}, "requests": {"cpu": "100"}}
    await tenant.creates(pod(f"p-{number}", 1, priority=0, **whole) for number in range(tenant.many(5_000)))
    for _ in range(tenant.many(500)):
        runs = next((found for found in tenant.pods() if found.spec.node_name), None)
        if runs is not None:
            await tenant.deletes(runs.metadata.name)
        await tenant.waits(0.01)


def _anti_affinity(key: str, **namespaces: object) -> dict[str, Any]:
    selector = {"matchExpressions": [{"key": key, "operator": "Exists"}]}
    term = {"topologyKey": _HOSTNAME, "labelSelector": selector, **namespaces}
    return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


async def anti_affinity_keys(tenant: Tenant) -> None:
    """Terms over its own namespace that name the labels which everybody's pods have."""
    for number in range(tenant.many(300)):
        affinity = _anti_affinity(("pod-index", "app")[number % 2])
        await tenant.creates([pod(f"p-{number}", node=tenant.node(number), affinity=affinity)])
    await tenant.creates(pod(f"w-{number}", _FITS_NOWHERE) for number in range(tenant.many(1_000)))


async def anti_affinity_everywhere(tenant: Tenant) -> None:
    """Terms over all namespaces whose values only one pod in the world has."""
    for number in range(tenant.many(1_000)):
        selector = {"matchLabels": {"pod-index": f"none-{number}"}}
        term = {"topologyKey": _HOSTNAME, "labelSelector": selector, "namespaceSelector": {}}
        affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
        await tenant.creates([pod(f"p-{number}", node=tenant.node(number), affinity=affinity)])


def _terms(number: int, **more: object) -> dict[str, Any]:
    """As many terms as a pod may have, none of which another pod has: about whatever lacks some label."""
    absent = ({"key": f"k-{number}-{term}", "operator": "DoesNotExist"} for term in range(MOST_TERMS))
    terms = [{"topologyKey": _HOSTNAME, "labelSelector": {"matchExpressions": [each]}, **more} for each in absent]
    return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}


async def anti_affinity_to_what_lacks_a_label(tenant: Tenant) -> None:
    """Terms over its own namespace that match whatever does not have one of ten thousand labels."""
    for number in range(tenant.many(250)):
        await tenant.creates([pod(f"p-{number}", node=tenant.node(number % 4), affinity=_terms(number))])
    await tenant.creates(pod(f"w-{number}", _FITS_NOWHERE) for number in range(tenant.many(1_000)))


async def anti_affinity_everywhere_to_what_lacks_a_label(tenant: Tenant) -> None:
    """The same over all namespaces, from one node: everybody's decision is about all of them."""
    for number in range(tenant.many(250)):
        affinity = _terms(number, namespaceSelector={})
        await tenant.creates([pod(f"p-{number}", node=tenant.node(0), affinity=affinity)])


async def nodes_that_are_none(tenant: Tenant) -> None:
    """By hand, each on a node of its own that does not exist."""
    await tenant.creates(pod(f"p-{number}", 1, node=f"none-{number}") for number in range(tenant.many(10_000)))


async def priorities(tenant: Tenant) -> None:
    """Each before everybody else, and none fits."""
    await tenant.creates(
        pod(f"p-{number}", _FITS_NOWHERE, priority=2**31 - 1 - number % 100) for number in range(tenant.many(3_000))
    )


async def exclusive(tenant: Tenant) -> None:
    """Some hold cards of their own, thousands wait for one of one node."""
    only = {names.EXCLUSIVE: "true"}
    await tenant.creates(
        pod(f"p-{number}", 1 + number % 70, annotations=only, nodeSelector={_HOSTNAME: tenant.node(number % 4)})
        for number in range(tenant.many(3_000))
    )


async def one_full_card(tenant: Tenant) -> None:
    """Thousands of templates of one unit for one card, which is full: what becomes free elsewhere helps none."""
    node = next(iter(tenant.world.nodes))
    taken = read_inventory(node, ResourceNames(), 1024).cards[0]
    cards = json.dumps({"0": taken.uuid})
    written = {names.ALLOCATION: json.dumps({"0": {"0": taken.units}}), names.INIT_ALLOCATION: "{}", names.CARDS: cards}
    await tenant.creates([pod("full", taken.units, node=node.metadata.name, annotations=written)])
    await tenant.creates(
        pod(f"p-{number}", 1, requests={"cpu": f"{1 + number}m"}, annotations={names.CARD_UUIDS: taken.uuid})
        for number in range(tenant.many(5_000))
    )


async def odd_texts(tenant: Tenant) -> None:
    """What breaks a line of a log, a label of a metric or the text of an Event, if anything does."""
    texts = (
        '\n{"event":"pod.bound"}\n',
        '"} 1\n# HELP x',
        "\x1b[2J\x1b]0;x\x07",
        "\u202e\u2028\x00\ufeff",
        "%s%n{0}{}$(x)",
        "\ud7ff" * 2_000,
    )
    keys = [names.CARD_POLICY, names.NODE_POLICY, names.CARD_MODELS, names.CARD_UUIDS, names.GPU_COUNT, names.EXCLUSIVE]
    keys += [names.CARD_AFFINITY, names.CARD_ANTI_AFFINITY]
    await tenant.creates(
        pod(
            f"p-{number}",
            1,
            annotations={keys[number % len(keys)]: texts[number // len(keys) % len(texts)] + str(number)},
        )
        for number in range(tenant.many(1_000))
    )


async def quantities(tenant: Tenant) -> None:
    """Amounts that are none, or too large for any number."""
    texts = ("1e30", "9223372036854775808", "1Ei", "0.0000000001", "-1", "", "NaN", "1_000", "\u0661", "1e400", "0x10")
    for number in range(tenant.many(1_000)):
        resource = ("cpu", "memory", names.GPU_MEM, names.GPU_CORE, "example.com/own")[number % 5]
        node = tenant.node(number) if number % 2 else ""
        await tenant.creates([pod(f"p-{number}", node=node, requests={resource: texts[number % len(texts)]})])


ATTACKS: Final = (
    Attack(name="10,000 pods of 10,000 templates that fit nowhere", acts=templates),
    Attack(name="10,000 small pods of 10,000 templates that fit", acts=bound_templates),
    Attack(name="10,000 pods of one template that fit nowhere", acts=fits_nowhere),
    Attack(name="5,000 pods that wait for one place, which one after the other takes", acts=in_turn),
    Attack(name="anti-affinity over labels that everybody's pods have", acts=anti_affinity_keys),
    Attack(
        name="1,000 anti-affinity terms over all namespaces",
        acts=anti_affinity_everywhere,
        server="taken, unless a quota of scope CrossNamespacePodAffinity forbids it",
    ),
    Attack(
        name="anti-affinity to whatever lacks one of ten thousand labels",
        acts=anti_affinity_to_what_lacks_a_label,
    ),
    Attack(
        name="anti-affinity over all namespaces to whatever lacks one of ten thousand labels",
        acts=anti_affinity_everywhere_to_what_lacks_a_label,
        server="taken, unless a quota of scope CrossNamespacePodAffinity forbids it",
    ),
    Attack(name="10,000 pods on nodes that do not exist", acts=nodes_that_are_none),
    Attack(
        name="3,000 pods of the highest priorities that fit nowhere",
        acts=priorities,
        server="takes the priority of a PriorityClass only",
    ),
    Attack(name="3,000 exclusive pods for the cards of four nodes", acts=exclusive),
    Attack(name="5,000 templates that wait for one full card", acts=one_full_card),
    Attack(name="texts that break logs, labels and terminals", acts=odd_texts),
    Attack(name="amounts that are none", acts=quantities, server="refuses most: quantities and counts are validated"),
)
