"""A container's part of each of its cards, as isolation enforces it. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from deviceplugin.allocation.decision import Share
from deviceplugin.allocation.pods import NodePod, PodContainer

_WHOLE: Final = 100


@dataclass(frozen=True, slots=True)
class ContainerShare:
    """A container's part of its cards.

    container: of several that run one after the other, the first. shares: at least one, the same units on each, by card
    index. unit_mib: MiB in one of their units.
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
        """Hundredths of each card, 1 to 100: what it asks of compute, else its share of the memory, rounded down.

        What is asked of several cards is spread evenly, rounded up, as the scheduler counts it.
        """
        first = self.shares[0]
        asked = -(-self.container.percent // len(self.shares))
        share = _WHOLE * first.units // first.card_units if first.card_units else _WHOLE
        return max(1, min(_WHOLE, asked or share))

    def values(self) -> Mapping[str, str]:
        """Values for the placeholders of `config.settings.isolation`."""
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
