"""Clusters with a bit of everything: which rule speaks first, and that none disturbs another."""

from random import Random

from tests.differential.groups import affinity, spread
from tests.differential.groups.claims import claim, mounted, storage_class, term, volume
from tests.differential.manifests import ZONE, Manifest, Scenario, container, pod, taint


def plain(rng: Random, name: str) -> Scenario:
    """Taints, cordons, selectors, ports, resources and the anti-affinity of pods that run."""
    made = affinity.cluster(rng, name)
    _spoil(rng, made)
    for number in range(rng.randint(0, 2)):
        terms = {"requiredDuringSchedulingIgnoredDuringExecution": [affinity.term(rng)]}
        made.objects.append(affinity.running(rng, made, f"away{number}", affinity={"podAntiAffinity": terms}))
    made.probes = [_pod(rng, f"p{number}") for number in range(8)]
    return made


def everything(rng: Random, name: str) -> Scenario:
    """The same, and spread, affinity and volumes."""
    made = plain(rng, name)
    made.objects += [storage_class("now", wait=False)]
    for number in range(2):
        only = [term(ZONE, rng.choice(("z0", "z1")))]
        made.objects.append(volume(f"pv{number}", of_class="now", claim=f"c{number}", only=only))
        made.objects.append(claim(f"c{number}", of_class="now", bound_to=f"pv{number}"))
    for each in made.probes:
        spec = each["spec"]
        if rng.random() < 0.4:
            hard = rng.choice(("DoNotSchedule", "ScheduleAnyway"))
            spec["topologySpreadConstraints"] = [spread.constraint(rng, hard)]
        if rng.random() < 0.3:
            kind = rng.choice(("podAffinity", "podAntiAffinity"))
            wanted = {"requiredDuringSchedulingIgnoredDuringExecution": [affinity.term(rng)]}
            spec.setdefault("affinity", {})[kind] = wanted
        if rng.random() < 0.25:
            each["metadata"]["namespace"] = "default"
            spec["volumes"] = mounted(rng.choice(("c0", "c1")))
    return made


def _spoil(rng: Random, made: Scenario) -> None:
    for each in made.objects:
        if each["kind"] != "Node":
            continue
        if rng.random() < 0.2:
            each["spec"]["taints"] = [taint("closed", rng.choice(("NoSchedule", "PreferNoSchedule")))]
        if rng.random() < 0.1:
            each["spec"]["unschedulable"] = True
        if rng.random() < 0.4:
            each["metadata"]["labels"]["disk"] = rng.choice(("ssd", "hdd"))
        if rng.random() < 0.3:
            small = {"cpu": "1", "memory": "1Gi", "pods": "2", "ephemeral-storage": "1Gi"}
            each["status"] = {"allocatable": small, "capacity": small}


def _pod(rng: Random, name: str) -> Manifest:
    made: Manifest = {}
    if rng.random() < 0.3:
        made["tolerations"] = [{"key": "closed", "operator": "Exists"}]
    if rng.random() < 0.3:
        made["nodeSelector"] = rng.choice(({"disk": "ssd"}, {ZONE: "z1"}, {"disk": "hdd", ZONE: "z0"}))
    if rng.random() < 0.2:
        preference = {"matchExpressions": [{"key": "disk", "operator": "In", "values": ["ssd"]}]}
        terms = [{"weight": rng.choice((1, 50)), "preference": preference}]
        made["affinity"] = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": terms}}
    requests = rng.choice(({}, {"cpu": "500m"}, {"cpu": "2", "memory": "1Gi"}, {"memory": "3Gi"}))
    ports = [{"containerPort": 80, "hostPort": 80}] if rng.random() < 0.15 else []
    containers = [container("c", requests, ports=ports)]
    where = rng.choice(("default", "default", "other"))
    return pod(name, namespace=where, labels=affinity.labels(rng), containers=containers, **made)
