"""The driver's source in threads of the test's own process."""

from deviceplugin.driver.calls import Worker
from deviceplugin.driver.nvml import NvmlSource
from deviceplugin.driver.process import DriverThreads


class Session(NvmlSource):
    """A driver that is never ended."""

    def end(self) -> None:
        """Do nothing: threads end when nothing hangs any more."""

    def on_end(self, callback: object) -> None:
        """Do nothing: the session lasts as long as its test."""


async def threads() -> Worker:
    """Start it."""
    return DriverThreads(Session())
