"""Facts of a node, before they are judged. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from config.settings.deviceplugin import Mode as ConfiguredMode
from deviceplugin.driver.cards import DriverCard
from deviceplugin.report.status import DevicePluginStatus


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
    """The node as the API server has it. problem: why nothing of it is known, "" when it is.

    allocatable: of gpu-mem. announced: it has an inventory. unit_mib: of that.
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
    """driver: its version; driver_problem: why it does not answer. cards: as it names them now.

    lacking: why NVIDIA's CDI specs do not bring every card into containers. spec_problems: specs that cannot be read.
    nvidia_runtime: it runs this very container. missing: files of the kubelet that are not there, and what for.
    status: what the plugin says of itself; status_problem: why it does not. mode: as configured.
    """

    node_name: str
    mode: ConfiguredMode
    simulated: bool
    driver: str = ""
    driver_problem: str = ""
    cards: tuple[DriverCard, ...] = ()
    lacking: str = ""
    spec_problems: tuple[str, ...] = ()
    nvidia_runtime: bool = False
    missing: Mapping[str, str] = field(default_factory=dict)
    checkpoint_problem: str = ""
    node: NodeFacts = field(default_factory=NodeFacts)
    status: DevicePluginStatus | None = None
    status_problem: str = ""
