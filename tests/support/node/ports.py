"""Ports of the parts of a node's plugin, with values that tests choose."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from deviceplugin.cdi.mode import Mode
from deviceplugin.events import NodeEvent
from deviceplugin.node.card_isolation import CardIsolation


class Recorded(list[NodeEvent]):
    """`EventRecorder` that keeps the Events."""

    def record(self, event: NodeEvent) -> None:
        self.append(event)


@dataclass
class FixedInjection:
    """`Injection` that tests change."""

    chosen: Mode | None = "cdi"
    withheld: str = ""
    uncovered: Mapping[str, str] = field(default_factory=dict)


class FixedIsolation(dict[str, CardIsolation]):
    """`NodeCardIsolation` that tests change."""

    def for_inventory(self) -> Mapping[str, CardIsolation]:
        return self


@dataclass
class Followed:
    """`Releases` for which an annotation is served once it says "done". texts: the parsed values of the annotation."""

    texts: list[str] = field(default_factory=list)

    async def follow(self, text: str) -> bool:
        self.texts.append(text)
        return "done" in text
