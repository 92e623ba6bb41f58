"""PodTopologySpread."""

from random import Random
from typing import Any, Final

from tests.differential.groups.affinity import topology
from tests.differential.manifests import HOSTNAME, ZONE, Manifest, Scenario, expression, matches, node, pod, taint

_REVISION: Final = "pod-template-hash"
_HARD: Final = "DoNotSchedule"
_SOFT: Final = "ScheduleAnyway"


def spread_hard(rng: Random, name: str) -> Scenario:
    """Constraints that must hold: skew by zone and node, several at once, selectors that do not take the pod itself."""
    made = _cluster(rng, name)
    made.probes = [
        _asked(rng, f"p{number}", [constraint(rng, _HARD) for _ in range(rng.choice((1, 1, 2)))]) for number in range(7)
    ]
    return made


def spread_policies(rng: Random, name: str) -> Scenario:
    """The same constraint with each policy for nodes that the pod cannot go to: they count, or do not."""
    made = _cluster(rng, name)
    zone = f"z{rng.randrange(2)}"
    made.objects.append(node("empty", labels={ZONE: "z9", "pool": "b"}, taints=[taint("closed", "NoSchedule")]))
    made.objects += [node("pooled", labels={ZONE: zone, "pool": "a"}), node("other", labels={ZONE: "z8", "pool": "b"})]
    base = {"topologyKey": ZONE, "maxSkew": 1, "whenUnsatisfiable": _HARD, "labelSelector": matches(app="web")}
    variants: tuple[Manifest, ...] = (
        {},
        {"nodeTaintsPolicy": "Honor"},
        {"nodeTaintsPolicy": "Ignore"},
        {"nodeAffinityPolicy": "Ignore"},
        {"nodeAffinityPolicy": "Ignore", "nodeTaintsPolicy": "Honor"},
    )
    for number, variant in enumerate(variants):
        one = [base | variant]
        made.probes.append(_asked(rng, f"p{number}", one))
        made.probes.append(_asked(rng, f"pooled{number}", one, nodeSelector={"pool": rng.choice(("a", "b"))}))
    tolerating = [{"key": "closed", "operator": "Exists"}]
    made.probes.append(_asked(rng, "tolerates", [base | {"nodeTaintsPolicy": "Honor"}], tolerations=tolerating))
    return made


def spread_domains(rng: Random, name: str) -> Scenario:
    """MinDomains below, at and above the number of domains."""
    made = _cluster(rng, name)
    for number, domains in enumerate((1, 2, 3, 4, 5)):
        asked = constraint(rng, _HARD, key=ZONE) | {"minDomains": domains, "labelSelector": matches(app="web")}
        made.probes.append(_asked(rng, f"zones{number}", [asked]))
    for number, domains in enumerate((3, 12)):
        asked = constraint(rng, _HARD, key=HOSTNAME) | {"minDomains": domains, "labelSelector": matches(app="web")}
        made.probes.append(_asked(rng, f"hosts{number}", [asked]))
    return made


def spread_label_keys(rng: Random, name: str) -> Scenario:
    """matchLabelKeys: only pods of the same revision count."""
    made = _cluster(rng, name)
    for number in range(6):
        asked = constraint(rng, rng.choice((_HARD, _HARD, _SOFT))) | {"labelSelector": matches(app="web")}
        asked["matchLabelKeys"] = rng.choice(([_REVISION], ["tier"], [_REVISION, "tier"], ["absent"]))
        made.probes.append(_asked(rng, f"p{number}", [asked]))
    return made


def spread_soft(rng: Random, name: str) -> Scenario:
    """Constraints that are preferences: what counts is the score."""
    made = _cluster(rng, name)
    made.probes = [
        _asked(rng, f"p{number}", [constraint(rng, _SOFT) for _ in range(rng.choice((1, 1, 2)))]) for number in range(5)
    ]
    mixed = [constraint(rng, _SOFT, key=HOSTNAME), constraint(rng, _HARD, key=ZONE)]
    made.probes.append(_asked(rng, "mixed", mixed))
    made.probes.append(_asked(rng, "one-zone", [constraint(rng, _SOFT)], nodeSelector={ZONE: "z1"}))
    return made


def spread_by_default(rng: Random, name: str) -> Scenario:
    """Pods of a Service, a ReplicaSet or a StatefulSet without constraints: kube-scheduler's own are used."""
    made = _cluster(rng, name)
    made.objects.append(
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": "web", "namespace": "default", "uid": "service-web"},
            "spec": {"selector": {"app": "web"}, "ports": [{"port": 80}]},
        }
    )
    made.objects += [_controller("ReplicaSet", "db", matches(app="db")), _controller("StatefulSet", "store", _stores())]
    made.probes = [
        pod("of-service", labels={"app": "web"}),
        pod("of-service-too", labels={"app": "web", "tier": "front"}, nodeSelector={ZONE: "z1"}),
        pod("of-nobody", labels={"app": "cache"}),
        pod("elsewhere", namespace="other", labels={"app": "web"}),
        pod("of-replicas", labels={"app": "db"}, meta=_owned("ReplicaSet", "db")),
        pod("of-set", labels={"app": "cache", "tier": "back"}, meta=_owned("StatefulSet", "store")),
        pod("of-both", labels={"app": "web"}, meta=_owned("StatefulSet", "store")),
        _asked(rng, "own", [constraint(rng, _SOFT)]),
    ]
    return made


def constraint(rng: Random, unsatisfiable: str, key: str = "") -> Manifest:
    """key: "" for any."""
    made: Manifest = {
        "topologyKey": key or rng.choice((ZONE, ZONE, HOSTNAME, "rack")),
        "maxSkew": rng.choice((1, 1, 2, 3)),
        "whenUnsatisfiable": unsatisfiable,
    }
    kind = rng.random()
    if kind < 0.7:
        made["labelSelector"] = matches(app=rng.choice(("web", "web", "db")))
    elif kind < 0.85:
        made["labelSelector"] = {"matchExpressions": [expression("app", "NotIn", "cache")]}
    elif kind < 0.95:
        made["labelSelector"] = {}
    if rng.random() < 0.2:
        made["nodeTaintsPolicy"] = rng.choice(("Honor", "Ignore"))
    if rng.random() < 0.2:
        made["nodeAffinityPolicy"] = rng.choice(("Honor", "Ignore"))
    return made


def _cluster(rng: Random, name: str) -> Scenario:
    made = Scenario(name, topology(rng, rng.randint(4, 9)))
    for each in made.objects:
        if rng.random() < 0.2:
            each["spec"]["taints"] = [taint("closed", rng.choice(("NoSchedule", "PreferNoSchedule")))]
        if rng.random() < 0.5:
            each["metadata"]["labels"]["rack"] = rng.choice(("k1", "k2"))
    nodes = made.nodes()
    for number in range(rng.randint(3, 14)):
        meta = {"deletionTimestamp": "2026-01-01T00:00:00Z"} if rng.random() < 0.1 else {}
        where = "default" if rng.random() < 0.85 else "other"
        # The first nodes have more: a skew is what is looked for.
        on = nodes[min(rng.randrange(len(nodes)), rng.randrange(len(nodes)))]
        made.objects.append(pod(f"r{number}", namespace=where, on=on, labels=_labels(rng), meta=meta))
    return made


def _labels(rng: Random) -> dict[str, str]:
    return {
        "app": rng.choice(("web", "web", "db", "cache")),
        "tier": rng.choice(("front", "back")),
        _REVISION: rng.choice("12"),
    }


def _asked(rng: Random, name: str, constraints: list[Manifest], **spec: Any) -> Manifest:  # noqa: ANN401 - as in YAML
    unique = {(each["topologyKey"], each["whenUnsatisfiable"]): each for each in constraints}
    return pod(name, labels=_labels(rng), topologySpreadConstraints=list(unique.values()), **spec)


def _stores() -> Manifest:
    return {"matchExpressions": [expression("tier", "In", "back")]}


def _controller(kind: str, name: str, selector: Manifest) -> Manifest:
    labels = {"app": "db", "tier": "back"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    spec: Manifest = {"selector": selector, "template": template, "replicas": 1}
    if kind == "StatefulSet":
        spec["serviceName"] = name
    meta = {"name": name, "namespace": "default", "uid": f"{kind}-{name}"}
    return {"apiVersion": "apps/v1", "kind": kind, "metadata": meta, "spec": spec}


def _owned(kind: str, name: str) -> Manifest:
    owner = {"apiVersion": "apps/v1", "kind": kind, "name": name, "uid": f"{kind}-{name}", "controller": True}
    return {"ownerReferences": [owner]}
