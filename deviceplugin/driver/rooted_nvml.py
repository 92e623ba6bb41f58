"""NVIDIA's driver below another root directory, as a source of cards."""

from pathlib import Path

from deviceplugin.driver import driver_root
from deviceplugin.driver.cards import NotOpened, Opened
from deviceplugin.driver.nvml import NVML, NvmlSource


class RootedNvml(NvmlSource):
    """`cards.CardSource` with the driver below a root directory."""

    def __init__(self, root: Path) -> None:
        super().__init__()
        self._root = root

    def open(self) -> Opened:
        """Load this root's NVML, then open it as `NvmlSource` does. Raises NotOpened."""
        try:
            driver_root.load(self._root, NVML)
        except OSError as error:
            raise NotOpened(f"the driver: {error}") from error
        return super().open()
