"""Arrivals of a CSV file -> the pods that are created, and when. Pure."""

import random
from collections.abc import Iterable, Sequence
from typing import Final

from config.clusterfile.arrivals import Arrival, PodAsk
from config.protocol import names
from config.settings.mistakes import ConfigurationError, Mistake
from scheduler.kube.objects import Container, ObjectMeta, PodObject, PodSpec, ResourceRequirements
from scheduler.pods.gpu_request import ResourceNames
from scheduler.tools.simulate.timeline import PodComes, Step

_NAMESPACE: Final = "default"
_MOST_TOLD: Final = 10


def pods_coming(arrivals: Iterable[Arrival], resources: ResourceNames, scheduler_name: str) -> list[PodComes]:
    """A step for each arrival. Pods with equal requests share them."""
    asked: dict[PodAsk, tuple[PodSpec, dict[str, str] | None, dict[str, str] | None]] = {}
    steps = []
    for arrival in arrivals:
        parts = asked.get(arrival.ask)
        if parts is None:
            parts = asked[arrival.ask] = _parts(arrival.ask, resources, scheduler_name)
        spec, labels, annotations = parts
        metadata = ObjectMeta(arrival.name, namespace=_NAMESPACE, labels=labels, annotations=annotations)
        steps.append(PodComes(arrival.at_s, PodObject(metadata, spec), arrival.runs_s))
    return steps


def shuffled(arrivals: Sequence[Arrival], seed: int) -> list[Arrival]:
    """The same pods in another order: the arrival times stay, the pods are permuted."""
    order = list(arrivals)
    random.Random(seed).shuffle(order)  # noqa: S311 - the same order for the same seed
    return [pod._replace(at_s=place.at_s) for pod, place in zip(order, arrivals, strict=True)]


def refuse_twins(steps: Iterable[Step], arrivals: Iterable[PodComes]) -> None:
    """Raise ConfigurationError for an arrival that is already among `steps`."""
    there = {
        (step.pod.metadata.namespace or _NAMESPACE, step.pod.metadata.name)
        for step in steps
        if isinstance(step, PodComes)
    }
    twice = [step.pod.metadata.name for step in arrivals if (_NAMESPACE, step.pod.metadata.name) in there]
    if twice:
        message = f"expected each pod once, found in a cluster file, too: {', '.join(twice[:_MOST_TOLD])}"
        raise ConfigurationError([Mistake("", "arrivals", message)])


def _parts(
    ask: PodAsk, resources: ResourceNames, scheduler_name: str
) -> tuple[PodSpec, dict[str, str] | None, dict[str, str] | None]:
    """(spec, labels, annotations): docs/protocol.md, "Requests"."""
    requests: dict[str, str | int | float] = {}
    if ask.cpu_milli:
        requests["cpu"] = f"{ask.cpu_milli}m"
    if ask.memory_mib:
        requests["memory"] = f"{ask.memory_mib}Mi"
    limits: dict[str, str | int | float] = {}
    if ask.cards:
        limits[resources.gpu_mem] = str(ask.units_per_card * ask.cards)
    container = Container(name="pod", resources=ResourceRequirements(requests or None, limits or None))
    spec = PodSpec(containers=(container,), scheduler_name=scheduler_name, priority=ask.priority)
    labels = {resources.gpu_count: str(ask.cards)} if ask.cards > 1 else None
    annotations = {names.CARD_MODELS: ",".join(ask.models)} if ask.models else None
    return spec, labels, annotations
