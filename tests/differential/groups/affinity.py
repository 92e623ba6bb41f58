"""InterPodAffinity: the terms of pods that run, and those of the pod itself."""

from random import Random
from typing import Any, Final

from tests.differential.manifests import (
    HOSTNAME,
    REGION,
    ZONE,
    Manifest,
    Scenario,
    expression,
    matches,
    namespace,
    node,
    pod,
)

_APPS: Final = ("web", "db", "cache")
_TIERS: Final = ("front", "back")
_NAMESPACES: Final = ("default", "other", "third")
_KEYS: Final = (ZONE, ZONE, HOSTNAME, REGION)
_REVISION: Final = "pod-template-hash"


def cluster(rng: Random, name: str) -> Scenario:
    """Zones and regions, some nodes without; namespaces with a label; pods with labels and no terms."""
    made = Scenario(name)
    made.objects = [namespace("default"), namespace("other", {"team": "a"}), namespace("third", {"team": "b"})]
    made.objects += topology(rng, rng.randint(4, 9))
    for number in range(rng.randint(2, 8)):
        made.objects.append(running(rng, made, f"r{number}"))
    return made


def topology(rng: Random, count: int) -> list[Manifest]:
    """Nodes in two or three zones of two regions."""
    zones = rng.choice((2, 3, 3))
    made = []
    for number in range(count):
        zone = rng.randrange(zones)
        labels = {ZONE: f"z{zone}", REGION: f"r{zone % 2}"}
        made.append(node(f"n{number}", labels={key: value for key, value in labels.items() if rng.random() < 0.9}))
    return made


def running(rng: Random, made: Scenario, name: str, **spec: Any) -> Manifest:  # noqa: ANN401 - as in YAML
    """A pod on one of the nodes."""
    where = rng.choices(_NAMESPACES, (4, 2, 1))[0]
    return pod(name, namespace=where, on=rng.choice(made.nodes()), labels=labels(rng), **spec)


def labels(rng: Random) -> dict[str, str]:
    found = {"app": rng.choice(_APPS), "tier": rng.choice(_TIERS), _REVISION: rng.choice(("1", "2"))}
    return {key: value for key, value in found.items() if key == "app" or rng.random() < 0.8}


def existing_anti_affinity(rng: Random, name: str) -> Scenario:
    """Pods that run want certain others away from their domain."""
    made = cluster(rng, name)
    for number in range(rng.randint(1, 4)):
        terms = {"requiredDuringSchedulingIgnoredDuringExecution": [term(rng) for _ in range(rng.choice((1, 1, 2)))]}
        made.objects.append(running(rng, made, f"away{number}", affinity={"podAntiAffinity": terms}))
    made.probes = [_asked(rng, f"p{number}") for number in range(8)]
    return made


def required_affinity(rng: Random, name: str) -> Scenario:
    """Pods that want to be beside others, or beside their own kind, of which they may be the first."""
    made = cluster(rng, name)
    made.probes = [
        _asked(rng, f"p{number}", affinity={"podAffinity": _required(rng, rng.choice((1, 1, 2)))})
        for number in range(5)
    ]
    first = {"labelSelector": matches(app="first"), "topologyKey": rng.choice((ZONE, HOSTNAME))}
    mine = {"requiredDuringSchedulingIgnoredDuringExecution": [first]}
    made.probes.append(pod("first", labels={"app": "first"}, affinity={"podAffinity": mine}))
    made.probes.append(pod("not-the-first", labels={"app": "web"}, affinity={"podAffinity": mine}))
    made.probes.append(
        pod("first-elsewhere", namespace="third", labels={"app": "first"}, affinity={"podAffinity": mine})
    )
    return made


def required_anti_affinity(rng: Random, name: str) -> Scenario:
    """Pods that want others away from them."""
    made = cluster(rng, name)
    made.probes = [
        _asked(rng, f"p{number}", affinity={"podAntiAffinity": _required(rng, rng.choice((1, 1, 2)))})
        for number in range(6)
    ]
    alone = {"labelSelector": matches(app="web"), "topologyKey": HOSTNAME}
    mine = {"requiredDuringSchedulingIgnoredDuringExecution": [alone]}
    made.probes.append(pod("one-per-node", labels={"app": "web"}, affinity={"podAntiAffinity": mine}))
    return made


def label_keys(rng: Random, name: str) -> Scenario:
    """Terms with matchLabelKeys and mismatchLabelKeys, which the API server merges into the selector."""
    made = cluster(rng, name)
    for number in range(6):
        merged = {
            "labelSelector": matches(app=rng.choice(_APPS)),
            "topologyKey": rng.choice((ZONE, HOSTNAME)),
            rng.choice(("matchLabelKeys", "mismatchLabelKeys")): rng.sample(("tier", _REVISION, "absent"), 1),
        }
        kind = rng.choice(("podAffinity", "podAntiAffinity"))
        wanted = {"requiredDuringSchedulingIgnoredDuringExecution": [merged]}
        made.probes.append(_asked(rng, f"p{number}", affinity={kind: wanted}))
    return made


def preferred_affinity(rng: Random, name: str) -> Scenario:
    """Weights for and against, of the pod and of those that run; required terms of those count one."""
    made = cluster(rng, name)
    for number in range(rng.randint(1, 4)):
        wanted: Manifest = {rng.choice(("podAffinity", "podAntiAffinity")): _preferred(rng)}
        if rng.random() < 0.4:
            wanted.setdefault("podAffinity", {})
            wanted["podAffinity"] |= _required(rng, 1)
        made.objects.append(running(rng, made, f"prefers{number}", affinity=wanted))
    for number in range(6):
        asked = {kind: _preferred(rng) for kind in ("podAffinity", "podAntiAffinity") if rng.random() < 0.6}
        made.probes.append(_asked(rng, f"p{number}", **({"affinity": asked} if asked else {})))
    made.probes.append(_asked(rng, "limited", nodeSelector={ZONE: "z1"}))
    return made


def _asked(rng: Random, name: str, **spec: Any) -> Manifest:  # noqa: ANN401 - as in YAML
    return pod(name, namespace=rng.choices(_NAMESPACES, (4, 2, 1))[0], labels=labels(rng), **spec)


def term(rng: Random) -> Manifest:
    """A term of affinity or anti-affinity."""
    made: Manifest = {"topologyKey": rng.choice(_KEYS)}
    kind = rng.random()
    if kind < 0.55:
        made["labelSelector"] = matches(app=rng.choice(_APPS))
    elif kind < 0.9:
        key, values = rng.choice((("app", _APPS), ("tier", _TIERS)))
        operator = rng.choice(("In", "NotIn", "Exists", "DoesNotExist"))
        chosen = rng.sample(values, 1) if operator in {"In", "NotIn"} else ()
        made["labelSelector"] = {"matchExpressions": [expression(key, operator, *chosen)]}
    elif kind < 0.95:
        made["labelSelector"] = {}
    if rng.random() < 0.25:
        made["namespaces"] = rng.sample(_NAMESPACES, rng.randint(1, 2))
    if rng.random() < 0.25:
        selectors: tuple[Manifest, ...] = ({}, matches(team="a"), matches(team="none"))
        made["namespaceSelector"] = rng.choice(selectors)
    return made


def _required(rng: Random, count: int) -> Manifest:
    return {"requiredDuringSchedulingIgnoredDuringExecution": [term(rng) for _ in range(count)]}


def _preferred(rng: Random) -> Manifest:
    terms = [
        {"weight": rng.choice((1, 10, 50, 100)), "podAffinityTerm": term(rng)} for _ in range(rng.choice((1, 1, 2)))
    ]
    return {"preferredDuringSchedulingIgnoredDuringExecution": terms}
