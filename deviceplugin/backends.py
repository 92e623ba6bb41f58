"""Selects the configured driver (NVML or a simulation) and how its cards are injected into containers."""

import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from config.settings.deviceplugin import DevicePluginConfiguration
from deviceplugin.cdi.host_nodes import HostNodes
from deviceplugin.cdi.nvidia_edits import Announced, NvidiaEdits, SimulatedEdits
from deviceplugin.driver import fault_control
from deviceplugin.driver.calls import Worker
from deviceplugin.driver.cards import DriverCards
from deviceplugin.driver.cuda_trials import CudaTrials
from deviceplugin.driver.process import NVML, DriverProcess, DriverThreads, start_cuda
from deviceplugin.driver.simulated import SimulatedDriver, read_simulation
from deviceplugin.driver.supervisor import SupervisedDriver
from scheduler.process.clock import Clock

GENERATED: Final = "cdi"
GENERATED_SPEC: Final = "nvidia.json"
SIMULATED_CARDS: Final = "cards"
_ATTACHED: Final = Path("/proc/driver/nvidia/gpus")


@dataclass(frozen=True, slots=True)
class CardBackend:
    """A driver that has not been queried yet. simulated: controls its simulated cards; None for real ones."""

    driver: SupervisedDriver
    simulated: SimulatedDriver | None = None


def backend_for(configuration: DevicePluginConfiguration) -> CardBackend:
    """Create the backend inside the event loop. Raises ConfigurationError or SimulationError for a bad cluster file."""
    if not configuration.simulate:
        root = configuration.driver_root
        opening = partial(DriverProcess.start, (*NVML, *filter(None, [root])))
        trials = CudaTrials(partial(start_cuda, root))
        return CardBackend(SupervisedDriver(opening, trials=trials, attached=attached_cards))
    simulated = SimulatedDriver(*read_simulation(Path(configuration.simulate), configuration.node_name))

    async def start() -> Worker:
        return DriverThreads(simulated.opened())

    return CardBackend(SupervisedDriver(start), simulated)


def attached_cards(folder: Path = _ATTACHED) -> frozenset[str]:
    """PCI addresses of the cards that the driver's kernel module shows; empty if the container hides them."""
    try:
        return frozenset(path.name for path in folder.iterdir())
    except OSError:
        return frozenset()


def edits_for(
    configuration: DevicePluginConfiguration,
    backend: CardBackend,
    found: Callable[[], DriverCards],
    announced: Announced,
    clock: Clock,
) -> NvidiaEdits | SimulatedEdits:
    """Return the source of CDI edits. found: the cards as the driver names them now."""
    state = Path(configuration.state_dir)
    if backend.simulated is not None:
        return SimulatedEdits(state / SIMULATED_CARDS, announced)
    spec_dirs = [Path(directory) for directory in configuration.cdi_spec_dirs]
    generated, nodes = (
        state / GENERATED / GENERATED_SPEC,
        HostNodes(Path(configuration.host_dev), proc=Path(configuration.host_proc)),
    )
    return NvidiaEdits(found, spec_dirs, generated, configuration.nvidia_ctk, nodes, clock=clock)


@contextlib.asynccontextmanager
async def controlled(configuration: DevicePluginConfiguration, backend: CardBackend) -> AsyncIterator[None]:
    """Accept faults on the control socket, if one is configured, while the context lasts."""
    if configuration.simulate_control and backend.simulated is not None:
        async with fault_control.serve(Path(configuration.simulate_control), backend.simulated):
            yield
    else:
        yield
