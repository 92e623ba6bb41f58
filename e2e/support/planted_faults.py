"""Faults of a node with NVIDIA cards, planted on a test node: each is a context that undoes it.

The node has the CDI spec `SPEC`, as the toolkit's service writes it, and its driver at /.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Final, TypeAlias

from e2e.support.nvidia_site import WAYS, NvidiaNode
from tests.support.nvidia import driver_root
from tests.support.nvidia.world import DRIVER

Planted: TypeAlias = AbstractContextManager[None]
Plant: TypeAlias = Callable[[NvidiaNode], Planted]

SPEC: Final = Path("/run/cdi/nvidia.yaml")
KEPT: Final = Path("/etc/cdi/nvidia.yaml")
CONFIG: Final = Path("/etc/nvidia-container-runtime/config.toml")
BY_UUID: Final = ("--device-name-strategy=uuid",)
EARLIER: Final = "570.86.15"
_IGNORES: Final = """\
accept-nvidia-visible-devices-envvar-when-unprivileged = false
accept-nvidia-visible-devices-as-volume-mounts = true
"""
_UVM: Final = ("nvidia-uvm", "nvidia-uvm-tools")


def world_says(*lines: str) -> Plant:
    """Make the stand-ins answer by these lines too."""

    def plant(on: NvidiaNode) -> Planted:
        return on.hardware.world(on.node).planted(*lines)

    return plant


def spec_edited(edit: Callable[[str], str]) -> Plant:
    """Replace the spec's text."""

    @contextmanager
    def plant(on: NvidiaNode) -> Iterator[None]:
        path = within(on, SPEC)
        before = path.read_text(encoding="utf-8")
        after = edit(before)
        if after == before:
            raise AssertionError(f"nothing to edit in {before}")
        path.write_text(after, encoding="utf-8")
        try:
            yield
        finally:
            path.write_text(before, encoding="utf-8")

    return plant


def spec_generated(*options: str, without: tuple[str, ...] = ()) -> Plant:
    """Generate the spec with these options of the toolkit while device nodes are missing."""

    @contextmanager
    def plant(on: NvidiaNode) -> Iterator[None]:
        try:
            with nodes_gone(*without)(on):
                on.hardware.generate(on.node, SPEC, options)
            yield
        finally:
            on.hardware.generate(on.node, SPEC, BY_UUID)

    return plant


def management_without_uvm(on: NvidiaNode) -> Planted:
    """Plant a management spec that was written before nvidia-uvm was loaded."""
    return spec_generated(*WAYS["management"].specs[KEPT], without=_UVM)(on)


def spec_without_uvm(on: NvidiaNode) -> Planted:
    """Plant a spec by UUID that was written before nvidia-uvm was loaded."""
    return spec_generated(*BY_UUID, without=_UVM)(on)


def nodes_gone(*names: str) -> Plant:
    """Remove device nodes."""

    @contextmanager
    def plant(on: NvidiaNode) -> Iterator[None]:
        for name in names:
            within(on, Path("/dev") / name).unlink()
        try:
            yield
        finally:
            for name in names:
                _make(on, name, on.hardware.uvm_major)

    return plant


@contextmanager
def uvm_of_an_earlier_boot(on: NvidiaNode) -> Iterator[None]:
    """Give nvidia-uvm the major of an earlier boot."""
    names, folder = _UVM, within(on, Path("/dev"))
    try:
        for name in names:
            (folder / name).unlink()
            _make(on, name, on.hardware.uvm_major + 1)
        yield
    finally:
        for name in names:
            (folder / name).unlink()
            _make(on, name, on.hardware.uvm_major)


@contextmanager
def worse_spec_of_higher_priority(on: NvidiaNode) -> Iterator[None]:
    """Add a spec of an earlier driver next to a good one."""
    on.hardware.generate(on.node, KEPT, BY_UUID)
    try:
        with spec_edited(of_an_earlier_driver)(on):
            yield
    finally:
        within(on, KEPT).unlink()


@contextmanager
def no_spec(on: NvidiaNode) -> Iterator[None]:
    """Delay the spec."""
    within(on, SPEC).unlink()
    try:
        yield
    finally:
        on.hardware.generate(on.node, SPEC, BY_UUID)


def library_as(name: str, text: str | None) -> Plant:
    """Give the driver's library this content; None: remove it."""

    @contextmanager
    def plant(on: NvidiaNode) -> Iterator[None]:
        path = within(on, Path("/") / driver_root.LIBRARIES / f"{name}.{DRIVER}")
        kept = path.rename(path.with_name(f"kept-{name}"))
        try:
            if text is not None:
                path.write_text(text, encoding="ascii")
            yield
        finally:
            path.unlink(missing_ok=True)
            kept.rename(path)

    return plant


@contextmanager
def spec_without_the_last_card(on: NvidiaNode) -> Iterator[None]:
    """Use a spec that was written before the last card existed."""
    world = on.hardware.world(on.node)
    last = world.cards.pop()
    world.write()
    try:
        on.hardware.generate(on.node, SPEC, BY_UUID)
        world.cards.append(last)
        world.write()
        yield
    finally:
        on.hardware.world(on.node).write()
        on.hardware.generate(on.node, SPEC, BY_UUID)


@contextmanager
def driver_updated(on: NvidiaNode) -> Iterator[None]:
    """Change the driver's version from that at the plugin's start."""
    world = on.hardware.world(on.node)
    world.driver = EARLIER
    world.write()
    try:
        yield
    finally:
        world.driver = DRIVER
        world.write()


def of_an_earlier_driver(spec: str) -> str:
    """Return the spec as the toolkit wrote it before an update of the driver."""
    return spec.replace(DRIVER, EARLIER)


def within(on: NvidiaNode, path: Path) -> Path:
    """Return the path of the node as seen from outside."""
    return on.node.root / path.relative_to("/")


def _make(on: NvidiaNode, name: str, uvm_major: int) -> None:
    major, minor = driver_root.CONTROL.get(name, (driver_root.CARDS_MAJOR, -1))
    if minor < 0:
        minor = int(name.removeprefix("nvidia"))
    numbers = (uvm_major if name in _UVM else major, minor)
    driver_root.make_node(within(on, Path("/dev") / name), numbers)


def toolkit_ignores_variables(on: NvidiaNode) -> None:
    """Make the toolkit accept requests of unprivileged containers, the plugin's included, only by mounts; permanent."""
    configuration = within(on, CONFIG)
    configuration.write_text(_IGNORES + configuration.read_text(encoding="utf-8"), encoding="utf-8")
    asked = "/run/nvidia-container-devices/all"
    on.node.run("sh", "-c", f"mkdir -p {asked} && mount --bind {asked} {asked}")
