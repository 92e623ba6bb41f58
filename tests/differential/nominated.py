"""Nominated pods of a scenario: where kube-scheduler counts them otherwise than we do."""

import re
from collections.abc import Mapping
from typing import Final

import msgspec

from tests.differential.manifests import HOSTNAME
from tests.differential.wire import Probe, Recorded

_TOPOLOGY_KEY: Final = re.compile(r'"topologyKey":"([^"]*)"')


class _Spec(msgspec.Struct, rename="camel"):
    priority: int = 0
    node_name: str = ""


class _Status(msgspec.Struct, rename="camel"):
    nominated_node_name: str = ""


class _Pod(msgspec.Struct):
    spec: _Spec = msgspec.field(default_factory=_Spec)
    status: _Status = msgspec.field(default_factory=_Status)


def seen_by(probe: Probe, scenario: Recorded) -> Mapping[str, bytes]:
    """By node, one of the pods that count for the probe: of its own or a higher priority."""
    found: dict[str, bytes] = {}
    for raw in map(bytes, scenario.objects):
        if b'"nominatedNodeName"' in raw:
            waits, asked = (msgspec.json.decode(each, type=_Pod) for each in (raw, probe.pod))
            if not waits.spec.node_name and waits.spec.priority >= asked.spec.priority:
                found[waits.status.nominated_node_name] = raw
    return found


def asks_of_domains(pod: bytes) -> bool:
    """Whether a pod has terms or constraints about more than single nodes."""
    raw = bytes(pod)
    return b'"topologySpreadConstraints"' in raw or any(key != HOSTNAME for key in _TOPOLOGY_KEY.findall(raw.decode()))
