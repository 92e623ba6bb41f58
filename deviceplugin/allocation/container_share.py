"""A container's part of each of its cards, as isolation enforces it, and the environment that describes it. Pure."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from config.protocol import environment, names
from config.protocol.container_formula import peak_amounts
from config.protocol.inventory import Card
from deviceplugin.allocation.decision import CardDecision, Share
from deviceplugin.allocation.pods import NodePod, PodContainer
from deviceplugin.cdi import spec

_WHOLE: Final = 100


@dataclass(frozen=True, slots=True)
class DriverLimit:
    """A container's limits on each of its cards, as NVIDIA's driver enforces them. soft_mib: the guaranteed part."""

    soft_mib: int
    hard_mib: int

    def variables(self) -> dict[str, str]:
        """Return the variables for NVIDIA's hook: always both, because a missing request means all of the limit."""
        return {environment.GPU_MEMORY_REQUEST: str(self.soft_mib), environment.GPU_MEMORY_LIMIT: str(self.hard_mib)}


@dataclass(frozen=True, slots=True)
class ContainerShare:
    """A container's part of its cards.

    container: the first, if several run one at a time. shares: at least one, ordered by card index, with the same units
    on each card. unit_mib: MiB per unit.
    """

    pod: NodePod
    container: PodContainer
    shares: Sequence[Share]
    unit_mib: int

    @property
    def uuids(self) -> tuple[str, ...]:
        """UUIDs of its cards, by index."""
        return tuple(share.uuid for share in self.shares)

    @property
    def percent(self) -> int:
        """Percentage of each card, 1 to 100: the requested compute, otherwise the share of its memory, rounded down.

        A request for several cards is split evenly and rounded up, as the scheduler counts it.
        """
        first = self.shares[0]
        asked = -(-self.container.percent // len(self.shares))
        share = _WHOLE * first.units // first.card_units if first.card_units else _WHOLE
        return max(1, min(_WHOLE, asked or share))

    def driver_limit(self, cards: Sequence[Card]) -> DriverLimit | None:
        """Return the limits for the driver; None if the pod has its cards to itself. cards: the node's.

        The request is guaranteed only to a pod that may use more. The driver rejects a limit above the card's memory.
        """
        if self.pod.exclusive:
            return None
        request_mib = self.shares[0].units * self.unit_mib
        card_mib = min((card.memory_mib for card in cards if card.uuid in self.uuids), default=request_mib)
        most_units = self.pod.most_units.get(self.container.name)
        if most_units is None:
            return DriverLimit(0, min(request_mib, card_mib))
        hard_mib = min(max(request_mib, most_units * self.unit_mib // len(self.shares)), card_mib)
        return DriverLimit(min(request_mib, hard_mib), hard_mib)

    def values(self) -> Mapping[str, str]:
        """Values for the placeholders in `config.settings.isolation`."""
        units = self.shares[0].units
        return {
            "units": str(units),
            "mib": str(units * self.unit_mib),
            "percent": str(self.percent),
            "uuid": ",".join(self.uuids),
            "index": ",".join(str(share.index) for share in self.shares),
            "pod_uid": self.pod.uid,
            "container": self.container.name,
        }


def most_mib_on_cards(pod: NodePod, decision: CardDecision, cards: Sequence[Card]) -> dict[str, int]:
    """Return card UUID -> MiB that the pod may use there, by the container formula; {} for an exclusive pod.

    cards: the node's.
    """
    amounts = []
    for container in pod.containers:
        shares = decision.shares.get(container.name, ())
        share = ContainerShare(pod, container, shares, decision.unit_mib)
        limit = share.driver_limit(cards) if shares else None
        amounts.append((dict.fromkeys(share.uuids, limit.hard_mib) if limit else {}, container.kind))
    return peak_amounts(amounts)


_EMPTY: Final[Mapping[str, str]] = {}


def container_environment(
    shares: Sequence[Share], *, by_cdi: bool, node_labels: Mapping[str, str] = _EMPTY
) -> dict[str, str]:
    """Return the environment variables of one container.

    shares: at least one, the same units on each, by card index. by_cdi: the cards come as device edits, and
    NVIDIA_VISIBLE_DEVICES must not add any; otherwise that variable passes them to the runtime, always by UUID.
    """
    first, uuids = shares[0], ",".join(share.uuid for share in shares)
    variables = {
        environment.VISIBLE_DEVICES: environment.VISIBLE_NONE if by_cdi else uuids,
        environment.CARD_UUIDS: uuids,
        names.MEM_IDX: str(first.index),
        names.MEM_POD: str(sum(share.units for share in shares)),
        environment.MEM_CONTAINER: str(first.units),
        names.MEM_DEV: str(first.card_units),
    }
    if node_labels.get(environment.CGPU_DISABLE_LABEL) == environment.TRUE:
        variables[environment.CGPU_DISABLE] = environment.TRUE
    return variables


@dataclass(frozen=True, slots=True)
class RecordedAnswer:
    """Allocate response as the kubelet recorded it. cdi_devices: full names of CDI devices."""

    variables: Mapping[str, str]
    cdi_devices: Collection[str] = ()

    @property
    def device_names(self) -> frozenset[str]:
        """Names of our CDI devices; the plugin writes their specs."""
        return spec.device_names(self.cdi_devices)


def replay_objection(answer: RecordedAnswer, shares: Sequence[Share]) -> str:
    """Return why the recorded Allocate response must not start with these shares; "" if it may.

    The kubelet replays the response at every start without asking again, so a wrong one stays wrong for the life of the
    pod. It may come from either mode, or from the legacy device plugin, which returns only card indexes. A response
    that names one of our CDI devices is always right, because the device's spec is rewritten at each start.
    """
    if answer.device_names:
        return ""
    recorded = answer.variables
    if not recorded:
        return f"it was allocated without a card ({', '.join(sorted(answer.cdi_devices)) or 'empty response'})"
    now = container_environment(shares, by_cdi=False)
    if environment.CARD_UUIDS not in recorded and names.MEM_IDX in recorded:
        # The runtime accepts an index, and a UUID if the node had only one card.
        uuid = recorded.get(environment.VISIBLE_DEVICES) == now[environment.VISIBLE_DEVICES]
        now |= {} if uuid else {environment.VISIBLE_DEVICES: now[names.MEM_IDX]}
        named = (names.MEM_IDX, environment.VISIBLE_DEVICES)
    else:
        named = (environment.CARD_UUIDS, environment.VISIBLE_DEVICES)
    for variable in (*named, environment.MEM_CONTAINER, names.MEM_POD):
        was = recorded.get(variable, "")
        # Cards are listed by index, and a reboot may have changed their order.
        if sorted(was.split(",")) != sorted(now[variable].split(",")):
            return f"it was allocated with {variable}={was or 'nothing'}, but its allocation says {now[variable]}"
    return ""
