"""The driver that the configuration asks for: NVML, or a simulation; and how its cards come into containers."""

import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path

from config.protocol import inventory
from config.settings.deviceplugin import DevicePluginConfiguration
from deviceplugin.cdi.nvidia_edits import NvidiaEdits
from deviceplugin.cdi.simulated_edits import SimulatedEdits
from deviceplugin.driver import fault_control
from deviceplugin.driver.cards import CardSource, DriverCards
from deviceplugin.driver.nvml import NvmlSource
from deviceplugin.driver.simulated import SimulatedSource, read_simulation

_GENERATED = "cdi/nvidia.json"
_SIMULATED_CARDS = "cards"


def source_for(configuration: DevicePluginConfiguration) -> CardSource:
    """Not asked anything yet. Raises ConfigurationError or SimulationError for an unusable cluster file."""
    if not configuration.simulate:
        return NvmlSource()
    cards, faults = read_simulation(Path(configuration.simulate), configuration.node_name)
    return SimulatedSource(cards, faults)


def edits_for(
    configuration: DevicePluginConfiguration,
    source: CardSource,
    found: Callable[[], DriverCards],
    announced: Callable[[], Sequence[inventory.Card]],
) -> NvidiaEdits | SimulatedEdits:
    """found: the cards as the driver names them now. announced: as the node does."""
    state = Path(configuration.state_dir)
    if isinstance(source, SimulatedSource):
        return SimulatedEdits(state / _SIMULATED_CARDS, announced)
    spec_dirs = [Path(directory) for directory in configuration.cdi_spec_dirs]
    return NvidiaEdits(found, spec_dirs, state / _GENERATED, configuration.nvidia_ctk)


@contextlib.asynccontextmanager
async def controlled(configuration: DevicePluginConfiguration, source: CardSource) -> AsyncIterator[None]:
    """Take faults on the control socket while the context lasts, where one is configured."""
    if configuration.simulate_control and isinstance(source, SimulatedSource):
        async with fault_control.serve(Path(configuration.simulate_control), source):
            yield
    else:
        yield
