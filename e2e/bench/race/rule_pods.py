"""The rows of one rule about labels each: the workload's pods with that rule, and whether it holds where they are."""

from collections import Counter
from collections.abc import Iterator
from typing import Final

from e2e.bench import workload
from e2e.bench.race.placed import Placed
from e2e.bench.workload import HOSTNAME, ZONE, ZONES, Json, Size, WorkloadTemplate

MAX_SKEW: Final = 1


def spread(size: Size) -> Iterator[Json]:
    """The replicas of each template are spread over the zones, without exception."""
    for template, pod in _pods(size):
        pod["spec"]["topologySpreadConstraints"] = [
            {"maxSkew": MAX_SKEW, "topologyKey": ZONE, "whenUnsatisfiable": "DoNotSchedule"}
            | {"labelSelector": _replicas_of(template)}
        ]
        yield pod


def apart(size: Size) -> Iterator[Json]:
    """No two replicas of a template share a node."""
    for template, pod in _pods(size):
        rule = {"requiredDuringSchedulingIgnoredDuringExecution": [_term(HOSTNAME, template)]}
        pod["spec"]["affinity"] = {"podAntiAffinity": rule}
        yield pod


def preferring(size: Size) -> Iterator[Json]:
    """Each template prefers a zone, the zone where its replicas are, and nodes where they are not."""
    for template, pod in _pods(size):
        pod["spec"]["affinity"] = {
            "nodeAffinity": {
                "preferredDuringSchedulingIgnoredDuringExecution": [_prefers_zone(_preferred_zone(template.app))]
            },
            "podAffinity": _preferably(ZONE, template, 60),
            "podAntiAffinity": _preferably(HOSTNAME, template, 100),
        }
        yield pod


def skewed(placed: Placed) -> int:
    """Templates whose replicas are not spread as evenly as they have to be."""
    found: dict[str, Counter[str]] = {}
    for pod in placed.pods:
        found.setdefault(_app(pod), Counter(dict.fromkeys(ZONES, 0)))[placed.zone_of(pod)] += 1
    return sum(max(zones.values()) - min(zones.values()) > MAX_SKEW for zones in found.values())


def together(placed: Placed) -> int:
    """Pods that share a node with another replica of their template, beyond the first there."""
    pairs = {(_app(pod), pod["spec"]["nodeName"]) for pod in placed.pods}
    return len(placed.pods) - len(pairs)


def elsewhere(placed: Placed) -> int:
    """Pods outside of the zone that they prefer."""
    return sum(placed.zone_of(pod) != _preferred_zone(_app(pod)) for pod in placed.pods)


def _app(pod: Json) -> str:
    app: str = pod["metadata"]["labels"]["app"]
    return app


def _preferred_zone(app: str) -> str:
    return ZONES[int(app.rpartition("-")[2]) % len(ZONES)]


def _pods(size: Size) -> Iterator[tuple[WorkloadTemplate, Json]]:
    templates = [workload.template(number) for number in range(size.templates)]
    for number in range(size.pods):
        template = templates[number % size.templates]
        yield template, workload.pod(number, template)


def _replicas_of(template: WorkloadTemplate) -> Json:
    return {"matchLabels": {"app": template.app}}


def _term(key: str, template: WorkloadTemplate) -> Json:
    return {"topologyKey": key, "labelSelector": _replicas_of(template)}


def _preferably(key: str, template: WorkloadTemplate, weight: int) -> Json:
    term = {"weight": weight, "podAffinityTerm": _term(key, template)}
    return {"preferredDuringSchedulingIgnoredDuringExecution": [term]}


def _prefers_zone(zone: str) -> Json:
    expression = {"key": ZONE, "operator": "In", "values": [zone]}
    return {"weight": 100, "preference": {"matchExpressions": [expression]}}
