"""Attacks by writes on the same objects, again and again, and by what becomes of their bindings."""

from collections.abc import Callable, Coroutine
from typing import Any, Final

from msgspec.structs import replace

from config.protocol import names
from scheduler.kube import objects
from scheduler.testing.cluster.faults import Effect, Fail, Refuse, RequestFault, Slow, Throttle
from tests.tenants.attack import Attack, Tenant, pod, with_metadata
from tests.tenants.huge_objects import text

_POLICY: Final = Refuse(403, "ValidatingAdmissionPolicy 'theirs' denied request")
_FITS_NOWHERE: Final = 1_000


def bindings_meet(fault: RequestFault, for_s: float) -> Callable[[Tenant], Coroutine[Any, Any, None]]:
    """Bindings of 500 pods are answered like this by the namespace's webhook, by a policy, or by what is in between."""

    async def acts(tenant: Tenant) -> None:
        tenant.bindings_meet(fault)
        await tenant.creates(pod(f"p-{number}", 1) for number in range(tenant.many(500)))
        await tenant.waits(for_s)

    return acts


async def annotates(tenant: Tenant, name: str, written: dict[str, str]) -> None:
    await tenant.updates(name, lambda found: with_metadata(found, annotations=written))


async def label_churn(tenant: Tenant) -> None:
    """On pods that wait."""
    await tenant.creates(pod(f"p-{number}", _FITS_NOWHERE) for number in range(20))
    for number in range(tenant.many(5_000)):
        await tenant.updates(f"p-{number % 20}", lambda found, n=number: with_metadata(found, labels={"app": str(n)}))  # type: ignore[misc]


async def request_churn(tenant: Tenant) -> None:
    """Annotations of pods that wait, which say what is asked."""
    await tenant.creates(pod(f"p-{number}", _FITS_NOWHERE) for number in range(20))
    for number in range(tenant.many(5_000)):
        written = {names.GPU_COUNT: str(1 + number % 8), names.CARD_MODELS: f"m{number}"}
        await annotates(tenant, f"p-{number % 20}", written)


async def huge_churn(tenant: Tenant) -> None:
    """256 KiB on one pod that waits, new each time."""
    await tenant.creates([pod("p", _FITS_NOWHERE)])
    for number in range(tenant.many(500)):
        written = {"example.com/text": text(number)}
        await annotates(tenant, "p", written)


async def bound_churn(tenant: Tenant) -> None:
    """What the scheduler has written on pods that run is edited."""
    await tenant.creates(pod(f"p-{number}", 1) for number in range(50))
    await tenant.waits(1)
    for number in range(tenant.many(5_000)):
        name = f"p-{number % 50}"
        cards = {names.CARDS: f'{{"0":"GPU-{number}"}}', names.ALLOCATION: f'{{"0":{{"0":{1 + number % 5}}}}}'}
        await tenant.updates(
            name,
            lambda found, w=cards: with_metadata(found, annotations={**(found.metadata.annotations or {}), **w}),  # type: ignore[misc]
        )


async def restarts(tenant: Tenant) -> None:
    """Containers that crash and come again, each time with an id of its own."""
    await tenant.creates(pod(f"p-{number}", 1) for number in range(tenant.many(500)))
    await tenant.waits(1)
    for turn in range(10):
        for found in tenant.pods():
            await tenant.updates(found.metadata.name, lambda pod, t=turn: _restarted(pod, t))  # type: ignore[misc]


def _restarted(found: objects.PodObject, turn: int) -> objects.PodObject:
    now = (objects.ContainerStatus(name="c0", container_id=f"containerd://{found.metadata.name}-{turn}"),)
    return replace(found, status=replace(found.status, phase="Running", container_statuses=now))


async def flapping(tenant: Tenant) -> None:
    """Pods are made and deleted at once, some before and some after they have a node."""
    for number in range(tenant.many(2_500)):
        await tenant.creates([pod(f"p-{number}", 1 if number % 2 else _FITS_NOWHERE)])
        if number >= 4:
            await tenant.deletes(f"p-{number - 4}")


async def same_name(tenant: Tenant) -> None:
    """One name, and another pod each time."""
    for number in range(tenant.many(2_500)):
        await tenant.creates([pod("p", 1, uid=f"uid-{number}")])
        await tenant.deletes("p")


async def finalizers(tenant: Tenant) -> None:
    """Pods that are deleted and never go."""
    for number in range(tenant.many(1_000)):
        made = pod(f"p-{number}", 1 if number % 2 else _FITS_NOWHERE)
        made["metadata"] |= {"finalizers": ["example.com/never"]}  # type: ignore[operator]
        await tenant.creates([made])
        await tenant.deletes(f"p-{number}")


async def gates(tenant: Tenant) -> None:
    """Opened and closed."""
    gate = (objects.SchedulingGate("example.com/quota"),)
    await tenant.creates(
        pod(f"p-{number}", _FITS_NOWHERE, schedulingGates=[{"name": gate[0].name}]) for number in range(50)
    )
    for number in range(tenant.many(5_000)):
        closed = gate if number // 50 % 2 else ()
        await tenant.updates(
            f"p-{number % 50}",
            lambda found, g=closed: replace(found, spec=replace(found.spec, scheduling_gates=g)),  # type: ignore[misc]
        )


async def namespace_labels(tenant: Tenant) -> None:
    """Of its own namespace, which terms of its pods select."""
    for number in range(200):
        term = {
            "topologyKey": "kubernetes.io/hostname",
            "labelSelector": {},
            "namespaceSelector": {"matchLabels": {"team": str(number)}},
        }
        affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
        await tenant.creates([pod(f"p-{number}", 1, affinity=affinity)])
    for number in range(tenant.many(2_000)):
        await tenant.labels_its_namespace({"team": str(1_000 + number)})


async def messages(tenant: Tenant) -> None:
    """Pods whose message is another at each attempt: the recorder has to write each."""
    for number in range(tenant.many(3_000)):
        name = f"p-{number % 300}"
        if number < 300:
            await tenant.creates([pod(name, _FITS_NOWHERE)])
        written = {names.CARD_MODELS: f"model-{number}"}
        await annotates(tenant, name, written)


ATTACKS: Final = (
    Attack(name="a webhook that answers every binding with 500", acts=bindings_meet(Fail(500), 5), scale=1),
    # A webhook's default time-out.
    Attack(
        name="a webhook that answers every binding after ten seconds",
        acts=bindings_meet(Slow(before_s=10), 20),
        scale=1,
    ),
    # They may have taken effect.
    Attack(name="bindings that are answered 503", acts=bindings_meet(Fail(503, Effect.LATER), 5), scale=1),
    Attack(name="a policy that refuses every binding", acts=bindings_meet(_POLICY, 15), scale=1),
    Attack(name="a Retry-After of a day for every binding", acts=bindings_meet(Throttle(86_400.0), 5), scale=1),
    Attack(name="labels of waiting pods that change all the time", acts=label_churn),
    Attack(name="requests of waiting pods that change all the time", acts=request_churn),
    Attack(name="256 KiB of annotations on a waiting pod, new each time", acts=huge_churn),
    Attack(
        name="edited annotations of running pods",
        acts=bound_churn,
        server="refused by the policy gpushare-allocation",
    ),
    Attack(name="500 pods whose containers crash all the time", acts=restarts),
    Attack(name="pods that are made and deleted at once", acts=flapping),
    Attack(name="pods of one name, one after the other", acts=same_name),
    Attack(name="1,000 deleted pods with finalizers that never end", acts=finalizers),
    Attack(name="scheduling gates opened and closed", acts=gates, server="lets a gate be removed, never added"),
    Attack(
        name="labels of its namespace that change all the time",
        acts=namespace_labels,
        server="takes it from whoever may patch the namespace",
    ),
    Attack(name="messages that change at each attempt", acts=messages),
)
