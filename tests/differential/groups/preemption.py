"""DefaultPreemption, and pods that wait for a node that was nominated for them."""

from collections.abc import Sequence
from random import Random
from typing import Any, Final

from tests.differential.groups import affinity, spread
from tests.differential.groups.claims import DRIVER, claim, csi_node, mounted, term, volume
from tests.differential.manifests import (
    HOSTNAME,
    ZONE,
    Manifest,
    Scenario,
    container,
    expression,
    matches,
    namespace,
    node,
    pod,
    taint,
)

_PRIORITIES: Final = (-10, 0, 0, 5, 10, 50)
_FPGA: Final = "example.com/fpga"
_LOWEST: Final = -(2**31)
_PORTS: Final = (80, 81)
_SHARED: Final = ("c0", "c1")
_ALONE: Final = ("c2",)
_ONE: Final = ("c2", None)
_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"


def preemption(rng: Random, name: str) -> Scenario:
    """Full nodes, pods of every priority and age, disruption budgets; pods that would evict some of them."""
    made = Scenario(name, post_filter=True)
    made.objects = [node(f"n{number}", cpu="4", memory="8Gi", pods="6") for number in range(rng.randint(2, 6))]
    if rng.random() < 0.4:
        made.objects[-1]["spec"]["taints"] = [taint("closed", "NoSchedule")]
    for each in [*made.objects]:
        left = 4000
        while left > 400:
            asked = min(left, rng.choice((500, 1000, 1500, 2000)))
            left -= asked
            made.objects.append(_running(rng, f"r{len(made.objects)}", each["metadata"]["name"], asked))
    made.objects += _budgets(rng)
    for number, cpu in enumerate(("500m", "1", "2", "3", "4", "6")):
        made.probes.append(
            pod(f"p{number}", priority=rng.choice((5, 10, 50, 100)), requests={"cpu": cpu, "memory": "1Gi"})
        )
    beside = {
        "requiredDuringSchedulingIgnoredDuringExecution": [{"labelSelector": matches(app="a"), "topologyKey": HOSTNAME}]
    }
    made.probes += [
        pod("never", priority=100, preemptionPolicy="Never", requests={"cpu": "2"}),
        pod("lowest", priority=-100, requests={"cpu": "2"}),
        pod("away", priority=100, requests={"cpu": "100m"}, affinity={"podAntiAffinity": beside}),
        pod("port", priority=100, containers=[_with_port()]),
    ]
    return made


def preemption_rules(rng: Random, name: str) -> Scenario:
    """Whom every other rule lets go: ports, volumes, affinity both ways, spread, resources of any name, taints."""
    made = Scenario(name, [namespace("default"), namespace("other", {"team": "a"})], post_filter=True)
    made.objects += _small_nodes(rng)
    made.objects += _volumes()
    names = made.nodes()
    free: set[tuple[str, Any]] = {(name, port) for name in names for port in _PORTS} | {_ONE}
    for number in range(rng.randint(2, 4) * len(names)):
        made.objects.append(_busy(rng, f"r{number}", rng.choice(names), free))
    for number in range(rng.choice((0, 0, 0, 1, 2))):
        made.objects.append(_nominated(rng, f"waits{number}", rng.choice(names)))
    made.objects += _odd_budgets(rng)
    made.probes = [_asking(rng, f"p{number}") for number in range(12)]
    return made


def preemption_wide(rng: Random, name: str) -> Scenario:
    """As many nodes as are compared at most, where the victims of many are alike."""
    made = Scenario(name, post_filter=True)
    made.objects = [node(f"n{number:02}", cpu="4", memory="8Gi") for number in range(rng.randint(60, 100))]
    for each in [*made.objects]:
        left = 4000
        while left > 400:
            asked = min(left, rng.choice((1000, 1000, 2000)))
            left -= asked
            number, priority = len(made.objects), rng.choice((5, 10, 20))
            status = {"phase": "Running", "startTime": f"2026-01-01T00:{number // 60:02}:{number % 60:02}Z"}
            labels = {"app": rng.choice("abc")}
            requests = {"cpu": f"{asked}m", "memory": rng.choice(("500Mi", "1Gi"))}
            where = each["metadata"]["name"]
            made.objects.append(
                pod(f"r{number}", on=where, labels=labels, priority=priority, requests=requests, status=status)
            )
    made.objects += _budgets(rng)
    for number, cpu in enumerate(("1", "2", "3", "4")):
        requests = {"cpu": cpu, "memory": rng.choice(("1Gi", "6Gi"))}
        made.probes.append(pod(f"p{number}", priority=rng.choice((10, 20, 100)), requests=requests))
    return made


def preemption_lowest(rng: Random, name: str) -> Scenario:
    """Victims of the lowest priority that there is: they add nothing to the sum, and only their number tells."""
    made = Scenario(name, post_filter=True)
    for number in range(rng.randint(2, 5)):
        made.objects.append(node(f"n{number}", cpu="4", memory="8Gi"))
        for place, cpu in enumerate(rng.choice((("4",), ("3", "1"), ("2", "1", "1")))):
            status = {"phase": "Running", "startTime": f"2026-01-01T0{rng.randrange(10)}:{number:02}:{place:02}Z"}
            priority = rng.choice((_LOWEST, _LOWEST, 5)) if place else 10
            requests = {"cpu": cpu}
            made.objects.append(
                pod(f"r{number}-{place}", on=f"n{number}", priority=priority, requests=requests, status=status)
            )
    made.probes = [pod(f"p{number}", priority=20, requests={"cpu": cpu}) for number, cpu in enumerate(("3500m", "4"))]
    return made


def preemption_again(rng: Random, name: str) -> Scenario:
    """Pods with a nominated node: their victims are going, or are not, or the node is none for them any more."""
    made = preemption(rng, name)
    made.objects[0]["spec"]["taints"] = [taint("closed", "NoSchedule")]
    made.objects[1]["status"]["allocatable"] = made.objects[1]["status"]["allocatable"] | {"cpu": "1"}
    for each in made.objects:
        if each["kind"] == "Pod" and rng.random() < 0.3:
            each["metadata"]["deletionTimestamp"] = "2026-01-01T12:00:00Z"
            reason = rng.choice(("PreemptionByScheduler", "PreemptionByScheduler", "EvictionByEvictionAPI"))
            status = rng.choice(("True", "True", "False"))
            condition = {"type": "DisruptionTarget", "status": status, "reason": reason, "message": ""}
            each["status"]["conditions"] = [condition]
    for number, each in enumerate(made.probes):
        each["status"] = {"phase": "Pending", "nominatedNodeName": f"n{number % len(made.nodes())}"}
    made.probes[0]["status"]["nominatedNodeName"] = "gone"
    return made


def nominated(rng: Random, name: str) -> Scenario:
    """Pods that wait with a nominated node: their place counts for pods of no higher priority."""
    made = Scenario(name)
    made.objects = [
        node(f"n{number}", cpu=rng.choice(("2", "4")), labels={ZONE: f"z{number % 2}"}) for number in range(3)
    ]
    for number in range(rng.randint(1, 5)):
        made.objects.append(
            pod(
                f"waits{number}",
                priority=rng.choice((0, 10, 100)),
                labels={"app": "a"},
                requests={"cpu": rng.choice(("500m", "1500m", "2"))},
                status={"phase": "Pending", "nominatedNodeName": f"n{rng.randrange(3)}"},
            )
        )
    for number, cpu in enumerate(("500m", "1", "1500m", "2", "3")):
        made.probes.append(pod(f"p{number}", priority=rng.choice((0, 10, 100)), requests={"cpu": cpu}))
    apart = {
        "requiredDuringSchedulingIgnoredDuringExecution": [{"labelSelector": matches(app="a"), "topologyKey": HOSTNAME}]
    }
    made.probes.append(pod("away", priority=rng.choice((0, 200)), affinity={"podAntiAffinity": apart}))
    made.probes.append(pod("beside", priority=rng.choice((0, 200)), affinity={"podAffinity": apart}))
    return made


def _small_nodes(rng: Random) -> list[Manifest]:
    found = affinity.topology(rng, rng.randint(3, 6))
    for each in found:
        amounts = {"cpu": "4", "memory": "8Gi", "pods": rng.choice(("5", "20")), _FPGA: rng.choice(("1", "2"))}
        each["status"] = {"allocatable": amounts, "capacity": amounts}
        if rng.random() < 0.15:
            each["spec"]["taints"] = [taint("closed", "NoSchedule")]
    limits = [csi_node(each["metadata"]["name"], {DRIVER: rng.choice((1, 2))}) for each in found]
    return [*found, *limits]


def _volumes() -> list[Manifest]:
    """Some for anybody, counted by node, and the second in some zones only; one for one pod at a time."""
    made = []
    for name in (*_SHARED, *_ALONE):
        modes = ["ReadWriteOncePod" if name in _ALONE else "ReadWriteMany"]
        only = [term(ZONE, "z0", "z1")] if name == _SHARED[1] else []
        made.append(volume(f"pv-{name}", claim=name, modes=modes, only=only))
        made.append(claim(name, bound_to=f"pv-{name}", modes=modes))
    return made


def _busy(rng: Random, name: str, on: str, free: set[tuple[str, Any]]) -> Manifest:
    """A pod that runs, and stands in somebody's way.

    free: ports of nodes, and the claim for one pod: each can be had once.
    """
    started = f"2026-01-01T0{rng.randrange(10)}:{int(name[1:]):02}:00Z"
    spec = _parts(rng, [port for port in _PORTS if (on, port) in free], [*_SHARED, *(_ALONE if _ONE in free else ())])
    free -= {(on, each["hostPort"]) for each in spec["containers"][0].get("ports", ())}
    free -= {_ONE} if spec.get("volumes") == mounted(*_ALONE) else set()
    if rng.random() < 0.2:
        spec["affinity"] = {"podAntiAffinity": {_REQUIRED: [affinity.term(rng)]}}
    priority = rng.choice(_PRIORITIES)
    status = {"phase": "Running", "startTime": started}
    where = "default" if "volumes" in spec else rng.choice(("default", "default", "other"))
    return pod(name, namespace=where, on=on, labels=affinity.labels(rng), priority=priority, status=status, **spec)


def _asking(rng: Random, name: str) -> Manifest:
    """A pod that may preempt, with a rule or two."""
    spec = _parts(rng, _PORTS, [*_SHARED, *_ALONE])
    kind = rng.random()
    if kind < 0.2:
        spec["affinity"] = {"podAntiAffinity": {_REQUIRED: [affinity.term(rng)]}}
    elif kind < 0.35:
        spec["affinity"] = {"podAffinity": {_REQUIRED: [affinity.term(rng)]}}
    elif kind < 0.6:
        one = spread.constraint(rng, "DoNotSchedule", rng.choice((ZONE, HOSTNAME)))
        # An empty selector counts no pods; kube-scheduler counts nominated ones.
        spec["topologySpreadConstraints"] = [one | {"labelSelector": one.get("labelSelector") or matches(app="web")}]
    if rng.random() < 0.2:
        spec["nodeSelector"] = {ZONE: "z1"}
    where = "default" if "volumes" in spec else rng.choice(("default", "default", "other"))
    return pod(name, namespace=where, labels=affinity.labels(rng), priority=rng.choice((5, 20, 100)), **spec)


def _parts(rng: Random, ports: Sequence[int], claims: Sequence[str]) -> Manifest:
    """Containers and volumes: one of these ports and claims, or none."""
    requests = {"cpu": rng.choice(("500m", "1", "2", "3")), "memory": rng.choice(("500Mi", "2Gi", "4Gi"))}
    if rng.random() < 0.3:
        requests[_FPGA] = "1"
    limits = {key: amount for key, amount in requests.items() if key == _FPGA}
    taken = [{"containerPort": 80, "hostPort": rng.choice(ports)}] if ports and rng.random() < 0.3 else []
    spec: Manifest = {"containers": [container("c", requests, limits, ports=taken)]}
    kind = rng.random()
    if kind < 0.3:
        spec["volumes"] = mounted(rng.choice(claims))
    elif kind < 0.4:
        spec["volumes"] = [{"name": "d", "gcePersistentDisk": {"pdName": rng.choice(("a", "b"))}}]
    return spec


def _nominated(rng: Random, name: str, on: str) -> Manifest:
    requests = {"cpu": rng.choice(("500m", "1"))}
    status = {"phase": "Pending", "nominatedNodeName": on}
    return pod(name, labels={"app": "waits"}, priority=rng.choice((5, 20, 200)), requests=requests, status=status)


def _odd_budgets(rng: Random) -> list[Manifest]:
    """Some that protect pods by any selector; pods that are counted already.

    No pod has two: whether kube-scheduler counts such a pod for the second one is chance.
    """
    both = {"matchExpressions": [expression("app", "In", "db", "cache")]}
    of_default = rng.choice(((matches(app="web"), both), (matches(app="web"), matches(app="db"), matches(app="cache"))))
    chosen = [
        *(("default", one) for one in of_default),
        ("default", {}),
        ("other", both),
        ("other", matches(app="web")),
    ]
    return [_odd_budget(rng, f"b{number}", *one) for number, one in enumerate(rng.sample(chosen, rng.randint(0, 4)))]


def _odd_budget(rng: Random, name: str, namespace: str, selector: Manifest) -> Manifest:
    made = _budget(name, selector, rng.choice((0, 0, 1, 2)))
    made["metadata"]["namespace"] = namespace
    if rng.random() < 0.5:
        counted = {f"r{rng.randrange(12)}": "2026-01-01T12:00:00Z" for _ in range(3)}
        made["status"]["disruptedPods"] = counted
    return made


def _running(rng: Random, name: str, on: str, cpu_millis: int) -> Manifest:
    # No two at one time: which of those goes first is chance.
    started = f"2026-01-01T0{rng.randrange(10)}:{int(name[1:]):02}:00Z"
    more: Manifest = {}
    if rng.random() < 0.1:
        more["containers"] = [_with_port(f"{cpu_millis}m")]
    leaving = {"deletionTimestamp": "2026-01-01T12:00:00Z"} if rng.random() < 0.05 else {}
    return pod(
        name,
        on=on,
        labels={"app": rng.choice("abc")},
        priority=rng.choice(_PRIORITIES),
        requests={"cpu": f"{cpu_millis}m", "memory": "500Mi"},
        status={"phase": "Running", "startTime": started},
        meta=leaving,
        **more,
    )


def _with_port(cpu: str = "100m") -> Manifest:
    port = {"containerPort": 80, "hostPort": 80}
    return {"name": "c", "image": "i", "ports": [port], "resources": {"requests": {"cpu": cpu}}}


def _budgets(rng: Random) -> list[Manifest]:
    return [_budget(app, matches(app=app), rng.choice((0, 0, 1, 2))) for app in "abc" if rng.random() < 0.6]


def _budget(name: str, selector: Manifest, allowed: int) -> Manifest:
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": name, "namespace": "default", "uid": f"budget-{name}"},
        "spec": {"selector": selector, "maxUnavailable": allowed},
        "status": {"disruptionsAllowed": allowed, "currentHealthy": 3, "desiredHealthy": 3, "expectedPods": 3},
    }
