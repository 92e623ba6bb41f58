"""What there is on a node of what the plugin writes, and who needs it. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from config.settings.scheduler import Resources
from scheduler.process.terminal import some

_MOST_TOLD: Final = 3


@dataclass(frozen=True, slots=True)
class HoldingPod:
    """A live pod that holds cards. pod: namespace and name, or what else is known. holds: what, for people."""

    pod: str
    holds: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Holders:
    """devices: names of the CDI devices of their containers; None: not known, so each may be one of them."""

    pods: tuple[HoldingPod, ...] = ()
    devices: frozenset[str] | None = frozenset()

    @property
    def told(self) -> str:
        """In a few words, however many they are: it is said of each file."""
        return f"pods hold cards: {some([holder.pod for holder in self.pods], _MOST_TOLD)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeObject:
    """annotations: keys. labels, capacity, allocatable: as they are written; amounts in whole numbers."""

    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: frozenset[str] = frozenset()
    capacity: Mapping[str, int] = field(default_factory=dict)
    allocatable: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class StateDirectory:
    """entries: name -> whether it is a directory. ours: names of what the plugin has made. lock: that of its lock.

    mounted: a mount of this container, which cannot be removed from within, or a link, which the plugin does not make.
    """

    path: str
    lock: str
    entries: Mapping[str, bool] = field(default_factory=dict)
    ours: frozenset[str] = frozenset()
    there: bool = False
    mounted: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Installed:
    """node: None where there is no such node, or the API server does not say.

    unknown: why nobody can say which pods hold cards; "" when it is known. listed: the kubelet has not forgotten the
    plugin's devices yet. specs: path of a CDI spec -> its device. sockets: paths. modes: path of the file of compute
    modes, where some are not given back yet; "" where none is. mps: directories of control daemons that have ended.
    unreadable: what could not be looked at, and why.
    """

    node_name: str
    resources: Resources
    state: StateDirectory
    node: NodeObject | None = None
    unknown: str = ""
    holders: Holders = Holders()
    listed: bool = False
    specs: Mapping[str, str] = field(default_factory=dict)
    sockets: tuple[str, ...] = ()
    modes: str = ""
    mps: tuple[str, ...] = ()
    unreadable: tuple[tuple[str, str], ...] = ()
