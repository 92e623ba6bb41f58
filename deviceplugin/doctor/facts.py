"""Facts about a node, and the finding of a check. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

import msgspec

from config.settings.deviceplugin import Enforcement
from config.settings.deviceplugin import Mode as ConfiguredMode
from deviceplugin.driver.cards import CardReading, DriverCard
from deviceplugin.driver.cuda import CudaAnswer
from deviceplugin.report.status import DevicePluginStatus

MOST_NAMED: Final = 5


@dataclass(frozen=True, slots=True)
class PodFacts:
    """A pod of this node that requests gpu-mem and has not finished. name: with its namespace.

    scheduled: it carries an allocation.
    """

    name: str
    scheduler: str
    runtime_class: str
    scheduled: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFacts:
    """The node from the API server. problem: why nothing is known about it; "" if it was read.

    allocatable: gpu-mem units. announced: it has an inventory. unit_mib: unit of that inventory.
    """

    problem: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    runtime_version: str = ""
    kubelet_version: str = ""
    capacity: int = 0
    allocatable: int = 0
    announced: bool = False
    pods: tuple[PodFacts, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """All facts. driver: its version; driver_problem: why it does not answer. cards: as it names them now.

    cuda: answer of cuInit by UUID, for the cards that were tried. readings: by UUID, for the cards that answer.
    lacking, some: as in `Coverage`, by NVIDIA's CDI specs. spec_problems: specs that cannot be read.
    nvidia_runtime: whether it runs this container. missing: files of the kubelet that do not exist, and their purpose.
    status: the plugin's status; status_problem: why it is unavailable. mode, isolation, enforcement: as configured.
    cgroup_problem: why the host's cgroups cannot be limited. hookless: UUIDs of cards that NVIDIA's CDI specs inject
    without the hook for memory limits.
    """

    node_name: str
    mode: ConfiguredMode
    simulated: bool
    isolation: str = "auto"
    enforcement: Enforcement = "preferred"
    cgroup_problem: str = ""
    hookless: frozenset[str] = frozenset()
    driver: str = ""
    driver_problem: str = ""
    cards: tuple[DriverCard, ...] = ()
    cuda: Mapping[str, CudaAnswer] = field(default_factory=dict)
    readings: Mapping[str, CardReading] = field(default_factory=dict)
    lacking: str = ""
    some: bool = False
    spec_problems: tuple[str, ...] = ()
    nvidia_runtime: bool = False
    missing: Mapping[str, str] = field(default_factory=dict)
    checkpoint_problem: str = ""
    node: NodeFacts = field(default_factory=NodeFacts)
    status: DevicePluginStatus | None = None
    status_problem: str = ""


class Verdict(StrEnum):
    """Result of a check. UNKNOWN: the check's input was unavailable; an earlier finding says why."""

    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"
    UNKNOWN = "unknown"


class Finding(msgspec.Struct, frozen=True):
    """Result of one check. check: one word, as in docs/first-gpu-node.md. remedy: "" if no action is needed."""

    check: str
    verdict: Verdict
    found: str
    remedy: str = ""


class Examination(msgspec.Struct, frozen=True):
    """Findings, ordered by how early the check usually fails on a new node."""

    node: str
    findings: tuple[Finding, ...]

    @property
    def healthy(self) -> bool:
        """Whether no check failed."""
        return all(one.verdict is not Verdict.FAILED for one in self.findings)


OK, WARNING, FAILED, UNKNOWN = Verdict.OK, Verdict.WARNING, Verdict.FAILED, Verdict.UNKNOWN


def some(items: list[str]) -> str:
    """Return the first few items and how many more there are."""
    more = f"; and {len(items) - MOST_NAMED} more" if len(items) > MOST_NAMED else ""
    return "; ".join(items[:MOST_NAMED]) + more


def count(number: int, what: str) -> str:
    """Return the number with its noun."""
    return f"{number} {what}{'' if number == 1 else 's'}"
