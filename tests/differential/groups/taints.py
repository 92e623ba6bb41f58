"""TaintToleration and NodeUnschedulable."""

from random import Random

from tests.differential.manifests import Manifest, Scenario, node, pod, taint

_KEYS = ("gpu", "team", "spot")
_VALUES = ("", "a", "b")
_EFFECTS = ("NoSchedule", "NoExecute", "PreferNoSchedule", "PreferNoSchedule")
_UNSCHEDULABLE = "node.kubernetes.io/unschedulable"


def taints(rng: Random, name: str) -> Scenario:
    """Nodes with up to four taints, hard and soft; pods that tolerate some of them in every way there is."""
    made = Scenario(name)
    made.objects = [node(f"n{number}", taints=_taints(rng)) for number in range(rng.randint(3, 7))]
    made.probes = [pod(f"p{number}", tolerations=_tolerations(rng)) for number in range(7)]
    made.probes.append(pod("plain"))
    return made


def unschedulable(rng: Random, name: str) -> Scenario:
    """Cordoned nodes, with and without the taint that the node controller adds."""
    made = Scenario(name)
    for number in range(rng.randint(2, 6)):
        cordoned = rng.random() < 0.6
        tainted = [taint(_UNSCHEDULABLE, "NoSchedule")] if cordoned and rng.random() < 0.4 else []
        made.objects.append(node(f"n{number}", unschedulable=cordoned, taints=tainted))
    made.probes = [
        pod("plain"),
        pod("by-key", tolerations=[{"key": _UNSCHEDULABLE, "operator": "Exists", "effect": "NoSchedule"}]),
        pod("any-effect", tolerations=[{"key": _UNSCHEDULABLE, "operator": "Exists"}]),
        pod("everything", tolerations=[{"operator": "Exists"}]),
        pod("other-effect", tolerations=[{"key": _UNSCHEDULABLE, "operator": "Exists", "effect": "NoExecute"}]),
        pod("empty-value", tolerations=[{"key": _UNSCHEDULABLE, "operator": "Equal", "effect": "NoSchedule"}]),
        pod("with-value", tolerations=[{"key": _UNSCHEDULABLE, "operator": "Equal", "value": "true"}]),
    ]
    return made


def _taints(rng: Random) -> list[Manifest]:
    found = {}
    for _ in range(rng.choice((0, 0, 1, 1, 2, 3, 4))):
        key, effect = rng.choice(_KEYS), rng.choice(_EFFECTS)
        found[key, effect] = taint(key, effect, rng.choice(_VALUES))
    return list(found.values())


def _tolerations(rng: Random) -> list[Manifest]:
    return [_toleration(rng) for _ in range(rng.choice((1, 1, 2, 3, 4)))]


def _toleration(rng: Random) -> Manifest:
    made: Manifest = {}
    if rng.random() < 0.9:
        made["key"] = rng.choice(_KEYS)
    if "key" not in made or rng.random() < 0.4:
        made["operator"] = "Exists"
    else:
        if rng.random() < 0.5:
            made["operator"] = "Equal"
        if value := rng.choice(_VALUES):
            made["value"] = value
    if rng.random() < 0.7:
        made["effect"] = rng.choice(_EFFECTS)
        if made["effect"] == "NoExecute" and rng.random() < 0.3:
            made["tolerationSeconds"] = 300
    return made
