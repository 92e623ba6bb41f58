"""Device nodes of the host that are visible to this container.

The host's `/dev` is mounted read-only at a path other than `/dev`, which holds the container's own nodes from its
start. A driver container has its nodes below a root of its own; they are visible if that root is mounted under the same
path. A path in an invisible directory counts neither as present nor as missing.
"""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from deviceplugin.driver.cards import DriverCard

DEV: Final = "/dev/"
# Where the driver container of NVIDIA's GPU Operator has its root on the host.
DRIVER_CONTAINER: Final = "/run/nvidia/driver"
# The last two serve debuggers and graphics; not every host has them.
CONTROL: Final = ("nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", "nvidia-modeset")
# Below /proc: the number of each node in /dev/nvidia-caps (NVIDIA MIG User Guide, "Device Nodes and Capabilities").
MIG_MINORS: Final = "driver/nvidia-caps/mig-minors"
_CAPS: Final = "nvidia-caps/nvidia-cap"


class HostNodes:
    """Lookups of device nodes. Every method blocks on the file system, which is memory for device nodes."""

    def __init__(self, dev: Path, roots: Iterable[str] = (DRIVER_CONTAINER,), *, proc: Path = Path("/proc")) -> None:
        """dev: where the host's `/dev` is mounted, or would be. roots: of drivers on the host. proc: the host's."""
        self._dev = dev
        self._roots = tuple(roots)
        self._mig_minors = proc / MIG_MINORS

    def lacks(self, path: str) -> bool:
        """Return whether it is certain that the host has no device node at this path."""
        seen = self._seen(path)
        try:
            return seen.parent.is_dir() and not seen.is_char_device()
        except OSError:
            return False  # Access denied does not prove that the node is missing.

    def caps(self, card: DriverCard) -> tuple[str, ...]:
        """Return the paths of the two nodes that give access to a MIG instance; empty if they are unknown."""
        if card.instance is None or card.minor is None:
            return ()
        try:
            text = self._mig_minors.read_text(encoding="ascii", errors="replace")
        except OSError:
            return ()
        gpu_instance, compute_instance = card.instance
        of_gpu = f"gpu{card.minor}/gi{gpu_instance}"
        lines = (f"{of_gpu}/access", f"{of_gpu}/ci{compute_instance}/access")
        found = [re.search(rf"^{line} (\d{{1,9}})$", text, re.ASCII | re.MULTILINE) for line in lines]
        return tuple(f"{DEV}{_CAPS}{match.group(1)}" for match in found if match) if all(found) else ()

    def of_cards(self, cards: Iterable[DriverCard]) -> dict[str, str]:
        """Return path in a container -> path on the host, for these cards and the control nodes.

        Empty if a node of a card is unknown or not visible: a container with a node that the host lacks does not start.
        """
        wanted = [self._names(card) for card in cards]
        return self._visible(list(dict.fromkeys(name for names in wanted for name in names))) if all(wanted) else {}

    def _names(self, card: DriverCard) -> list[str]:
        """Return the names of the card's nodes below /dev; empty if they are unknown."""
        caps = [path.removeprefix(DEV) for path in self.caps(card)]
        if card.minor is None or (card.parent and not caps):
            return []
        return [f"nvidia{card.minor}", *caps]

    def _visible(self, cards: list[str]) -> dict[str, str]:
        for folder in (DEV, *(f"{root}{DEV}" for root in self._roots)):
            there = [name for name in (*cards, *CONTROL) if _is_node(self._seen(f"{folder}{name}"))]
            if cards and there[: len(cards)] == cards:
                return {f"{DEV}{name}": f"{folder}{name}" for name in there}
        return {}

    def _seen(self, path: str) -> Path:
        """Return the path of the node in this container."""
        return self._dev / path.removeprefix(DEV) if path.startswith(DEV) else Path(path)


def _is_node(path: Path) -> bool:
    try:
        return path.is_char_device()
    except OSError:
        return True  # Access denied does not prove that the node is missing.
