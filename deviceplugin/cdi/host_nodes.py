"""Device nodes of the host that are visible to this container.

The host's `/dev` is mounted read-only at a path other than `/dev`, which holds the container's own nodes from its
start. A driver container has its nodes below a root of its own; they are visible if that root is mounted under the same
path. A path in an invisible directory counts neither as present nor as missing.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Final

DEV: Final = "/dev/"
# Where the driver container of NVIDIA's GPU Operator has its root on the host.
DRIVER_CONTAINER: Final = "/run/nvidia/driver"
# The last two serve debuggers and graphics; not every host has them.
CONTROL: Final = ("nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", "nvidia-modeset")


class HostNodes:
    """Lookups of device nodes. Every method blocks on the file system, which is memory for device nodes."""

    def __init__(self, dev: Path, roots: Iterable[str] = (DRIVER_CONTAINER,)) -> None:
        """dev: where the host's `/dev` is mounted, or would be. roots: roots of drivers, on the host."""
        self._dev = dev
        self._roots = tuple(roots)

    def lacks(self, path: str) -> bool:
        """Return whether it is certain that the host has no device node at this path."""
        seen = self._seen(path)
        try:
            return seen.parent.is_dir() and not seen.is_char_device()
        except OSError:
            return False  # Access denied does not prove that the node is missing.

    def of_cards(self, minors: Iterable[int]) -> dict[str, str]:
        """Return path in a container -> path on the host, for these cards and the control nodes.

        Empty if the cards' nodes are not visible: a container with a node that the host lacks does not start.
        """
        cards = [f"nvidia{minor}" for minor in minors]
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
