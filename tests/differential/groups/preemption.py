"""DefaultPreemption, and pods that wait for a node that was nominated for them."""

from random import Random
from typing import Final

from tests.differential.manifests import HOSTNAME, ZONE, Manifest, Scenario, matches, node, pod, taint

_PRIORITIES: Final = (-10, 0, 0, 5, 10, 50)


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
    made = []
    for app in "abc":
        if rng.random() < 0.6:
            allowed = rng.choice((0, 0, 1, 2))
            status = {"disruptionsAllowed": allowed, "currentHealthy": 3, "desiredHealthy": 3, "expectedPods": 3}
            made.append(
                {
                    "apiVersion": "policy/v1",
                    "kind": "PodDisruptionBudget",
                    "metadata": {"name": app, "namespace": "default", "uid": f"budget-{app}"},
                    "spec": {"selector": matches(app=app), "maxUnavailable": allowed},
                    "status": status,
                }
            )
    return made
