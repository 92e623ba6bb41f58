"""Cards that the plugin has released for an operator, who resets them or changes MIG mode, until they are reclaimed.

    HELD --annotation `gpushare/release`, or the command--> RELEASED --time-out, annotation or command--> HELD

While the plugin holds a card, the driver rejects both. A released card is reclaimed automatically when its time ends,
even after a restart of the plugin. Owned by the event loop.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Final, Protocol

import msgspec
import structlog

from deviceplugin.driver.cards import DriverCard, and_instances
from deviceplugin.health.monitor import CardKeeper
from deviceplugin.line_socket import Refusal
from scheduler.process.clock import Clock

RELEASE_S: Final = 600.0
LONGEST_S: Final = 86_400.0
ALL: Final = "all"
SOCKET: Final = "control.sock"
log = structlog.get_logger()


class Order(msgspec.Struct, rename="camel", forbid_unknown_fields=True, omit_defaults=True):
    """An operator's request on the socket. cards: indexes, UUIDs, or `all`. done: reclaim them."""

    cards: list[str]
    done: bool = False
    for_s: Annotated[float, msgspec.Meta(gt=0, le=LONGEST_S)] = RELEASE_S


def socket_path(state_dir: Path) -> Path:
    """Return the path of the socket that accepts orders, in a directory that only its owner, root, may enter."""
    return state_dir / SOCKET


class _Allocations(Protocol):
    """Port: the pods of the node."""

    def allocated_units(self) -> dict[str, int]:
        """Return UUID -> units that pods have on the card."""
        ...


@dataclass(slots=True, kw_only=True)
class Releases:
    """Released cards."""

    keeper: CardKeeper
    allocations: _Allocations
    clock: Clock

    async def serve_line(self, line: bytes) -> str:
        """Serve an `Order` of the socket. Return the reply to its sender. Raises line_socket.Refusal."""
        order = msgspec.json.decode(line, type=Order)
        cards = self._named(order.cards)
        if order.done:
            await self.keeper.release([card.uuid for card in cards], None)
            return "\n".join(f"{_name(card)} is reclaimed" for card in cards)
        held, said = await self._release(cards, order.for_s)
        if held:
            raise Refusal(held)
        return said

    async def follow(self, text: str) -> bool:
        """Apply the annotation's current text. Return whether it is served and can be removed."""
        cards = named(text.split(","), self.keeper.states.cards) if text else []
        uuids, released = frozenset(card.uuid for card in cards), self.keeper.states.released().keys()
        # Kept over a restart: a card whose release has ended in the meantime is not released again.
        before = self.keeper.states.annotated()
        self.keeper.states.annotate(uuids)
        if back := (before - uuids) & released:
            await self.keeper.release(back, None)
        # Instances that were created during the release do not start another one.
        new = [card for card in cards if not {card.uuid, card.parent} & before and card.uuid not in released]
        if new:
            held, said = await self._release(new, RELEASE_S)
            if held:
                log.warning("card.release_failed", uuids=[card.uuid for card in new], reason=held)
            else:
                log.info("card.released", said=said)
        return bool(text) and not uuids & self.keeper.states.released().keys()

    async def _release(self, cards: Sequence[DriverCard], for_s: float) -> tuple[str, str]:
        """Release the cards. Return (why they may still be held, or ""; the message for the operator)."""
        until_s = self.clock.wall_s() + for_s
        held = await self.keeper.release([card.uuid for card in cards], until_s)
        allocated, until = self.allocations.allocated_units(), datetime.fromtimestamp(until_s, UTC)
        return held, "\n".join(
            f"{_name(card)} is released until {until:%H:%M:%S} UTC and takes no new pods"
            + (f"; pods hold {units} of its units and may keep it busy" if (units := allocated.get(card.uuid)) else "")
            for card in cards
        )

    def _named(self, names: Sequence[str]) -> list[DriverCard]:
        listed = self.keeper.states.cards
        unknown = [name for name in names if not named([name], listed)]
        if unknown or not names:
            there = ", ".join(f"{card.index} ({card.uuid})" for card in listed) or "none"
            raise Refusal(f"there is no card {', '.join(unknown)}; expected all, or any of: {there}")
        return named(names, listed)


def named(names: Iterable[str], cards: Sequence[DriverCard]) -> list[DriverCard]:
    """Return the cards with these indexes or UUIDs; all cards for `all`.

    NVML holds a card as a whole. So a MIG instance stands for its parent, and a card for itself with its instances.
    """
    wanted = {name.strip() for name in names}
    whole = {card.parent or card.uuid for card in cards if wanted & {ALL, str(card.index), card.uuid}}
    return [card for card in cards if card.uuid in and_instances(whole, cards)]


def _name(card: DriverCard) -> str:
    return f"card {card.index} ({card.uuid})"
