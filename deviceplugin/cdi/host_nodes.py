"""Device nodes of the host, as far as this container sees them.

The host's `/dev` is mounted, read-only and elsewhere than at `/dev`: the runtime has made the container's own when the
container started. A driver in a container has its nodes below a root of its own; they are seen where that is mounted
under the same path. A path in a directory that is not seen is neither there nor lacking.
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
    """Every method blocks for as long as the disk takes, which is memory for device nodes."""

    def __init__(self, dev: Path, roots: Iterable[str] = (DRIVER_CONTAINER,)) -> None:
        """dev: where the host's `/dev` is mounted, or would be. roots: of drivers, on the host."""
        self._dev = dev
        self._roots = tuple(roots)

    def lacks(self, path: str) -> bool:
        """Whether the host is known not to have a device node at this path of its own."""
        seen = self._seen(path)
        try:
            return seen.parent.is_dir() and not seen.is_char_device()
        except OSError:
            return False  # It may not be looked at: that is no proof that it is missing.

    def of_cards(self, minors: Iterable[int]) -> dict[str, str]:
        """Path in a container -> path on the host, of these cards and the control nodes.

        Empty where the nodes of the cards are not seen: a container with a node that the host lacks does not start.
        """
        cards = [f"nvidia{minor}" for minor in minors]
        for folder in (DEV, *(f"{root}{DEV}" for root in self._roots)):
            there = [name for name in (*cards, *CONTROL) if _is_node(self._seen(f"{folder}{name}"))]
            if cards and there[: len(cards)] == cards:
                return {f"{DEV}{name}": f"{folder}{name}" for name in there}
        return {}

    def _seen(self, path: str) -> Path:
        """Path of the node in this container."""
        return self._dev / path.removeprefix(DEV) if path.startswith(DEV) else Path(path)


def _is_node(path: Path) -> bool:
    try:
        return path.is_char_device()
    except OSError:
        return True  # It may not be looked at: that is no proof that it is missing.
