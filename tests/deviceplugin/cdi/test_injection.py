"""How cards come into containers: by what there is on the node, never bare; without a way the plugin waits."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from config.settings.deviceplugin import Mode as ConfiguredMode
from deviceplugin.cdi.injection import InjectionMode
from deviceplugin.cdi.mode import (
    Coverage,
    InjectionSupport,
    Mode,
    NoInjectionMode,
    brings_nvml,
    mode_of,
    reads_cdi,
    takes_volume_mounts,
)
from deviceplugin.events import NodeEvent

LACKING = "there is no CDI spec of kind nvidia.com/gpu"
UNKNOWN = "containerd://Unknown"


def support(
    runtime: str = "containerd://2.1.9",
    lacking: str = "",
    *,
    nvidia: bool = False,
    real: bool = True,
    some: bool = False,
    last: Mode | None = None,
) -> InjectionSupport:
    return InjectionSupport(
        runtime_version=runtime, lacking=lacking, nvidia_runtime=nvidia, real=real, some=some, last=last
    )


@pytest.mark.parametrize(
    ("runtime", "expected"),
    [
        ("containerd://2.0.0", True),
        ("containerd://2.1.9", True),
        ("containerd://v2.3.0-rc.1", True),
        ("containerd://10.0.0", True),
        ("containerd://1.7.27", False),
        ("containerd://1.6.0", False),
        ("cri-o://1.33.1", True),
        ("docker://27.0.1", False),
        ("containerd://9c4b5e0", False),
        ("containerd://Unknown", None),
        ("", None),
    ],
)
def test_a_runtime_that_reads_cdi_without_being_told_to(runtime: str, expected: object) -> None:
    assert reads_cdi(runtime) is expected


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        pytest.param(support(), "cdi", id="specs that bring every card in"),
        pytest.param(support(nvidia=True), "cdi", id="specs come before the NVIDIA runtime"),
        pytest.param(support(lacking=LACKING, nvidia=True), "environment", id="no specs, the NVIDIA runtime"),
        pytest.param(
            support("containerd://1.7.27", nvidia=True), "environment", id="specs that the runtime does not read"
        ),
        pytest.param(support(lacking="-", real=False), "cdi", id="simulated cards need no spec of NVIDIA's"),
        pytest.param(support("containerd://1.7.27", real=False), "environment", id="simulated cards, no CDI"),
        pytest.param(support(lacking=LACKING, some=True), "cdi", id="specs that bring in some cards"),
        pytest.param(support(lacking=LACKING, some=True, nvidia=True), "environment", id="the runtime brings in all"),
        pytest.param(support(lacking=LACKING, nvidia=True, last="cdi"), "cdi", id="CDI before: the specs come late"),
        pytest.param(support(nvidia=True, last="environment"), "cdi", id="the environment before, specs now"),
        pytest.param(
            support("containerd://1.7.27", nvidia=True, last="cdi"), "environment", id="a runtime that does not read it"
        ),
        pytest.param(support(UNKNOWN, nvidia=True, last="cdi"), "cdi", id="a runtime that restarts, CDI before"),
        pytest.param(support(UNKNOWN, last="environment"), "environment", id="a runtime that restarts"),
    ],
)
def test_what_is_there_decides(found: InjectionSupport, expected: str) -> None:
    assert mode_of("auto", found) == expected


@pytest.mark.parametrize(
    ("found", "message"),
    [
        pytest.param(
            support(lacking=LACKING), f"{LACKING}; and the NVIDIA runtime does not run this pod", id="neither"
        ),
        pytest.param(support("containerd://1.7.27"), "containerd://1.7.27 does not read CDI specs", id="old"),
        pytest.param(support(UNKNOWN, nvidia=True), "not report a container runtime version", id="unknown"),
    ],
)
def test_without_an_injection_mode_there_is_a_reason_and_no_mode(found: InjectionSupport, message: str) -> None:
    with pytest.raises(NoInjectionMode, match=message):
        mode_of("auto", found)


def test_what_is_configured_holds_whatever_there_is() -> None:
    assert mode_of("cdi", support("containerd://1.7.27", LACKING)) == "cdi"
    assert mode_of("environment", support()) == "environment"


@pytest.mark.parametrize(
    ("mountinfo", "expected"),
    [
        pytest.param(
            "36 35 98:0 /x /usr/lib/libnvidia-ml.so.580.95.05 ro - ext4 /dev/sda ro", True, id="by the runtime"
        ),
        pytest.param("36 35 98:0 /x /usr/local/nvidia/lib64 ro - ext4 /dev/sda ro", False, id="a folder of the host"),
        pytest.param("36 35 98:0 / / rw - overlay overlay rw\n\nshort line", False, id="no NVML"),
        pytest.param("", False, id="nothing"),
    ],
)
def test_the_nvidia_runtime_is_known_by_what_it_mounts_into_our_own_container(mountinfo: str, expected: object) -> None:
    assert brings_nvml(mountinfo) is expected


@pytest.mark.parametrize(("card", "expected"), [("all", True), ("void", False)])
def test_cards_are_asked_for_by_mounts_where_our_own_container_does_so(card: str, expected: object) -> None:
    mounted = f"36 35 0:6 /null /run/nvidia-container-devices/{card} ro - devtmpfs udev rw"
    assert takes_volume_mounts(mounted) is expected


NVIDIA = "36 35 98:0 /x /usr/lib/libnvidia-ml.so.580.95.05 ro - ext4 /dev/sda ro"
ALL = Coverage()
ONE_OF_TWO = Coverage("card GPU-b: no", {"GPU-b": "card GPU-b: no"})


def none(reason: str) -> Coverage:
    return Coverage(reason, {"GPU-a": reason}, some=False)


def runtime() -> str:
    return "containerd://2.1.9"


@dataclass
class Specs:
    """CDI specs. finds: their coverage at each look, the last for ever."""

    finds: list[Coverage]
    known: bool = True
    coverage: Coverage = field(default_factory=lambda: none("not looked yet"))
    looks: int = 0

    def prepare(self) -> None:
        self.coverage = self.finds[min(self.looks, len(self.finds) - 1)]
        self.looks += 1


@dataclass
class Site:
    """A node. recorded: reason and note of each Event. changes: how often the mode has called."""

    folder: Path
    recorded: list[tuple[str, str]] = field(default_factory=list)
    changes: int = 0

    def injection(
        self, specs: Specs, configured: ConfiguredMode = "auto", *, mountinfo: str = "", last: str = ""
    ) -> InjectionMode:
        (self.folder / "mountinfo").write_text(mountinfo)
        file = self.folder / "mountinfo"
        return InjectionMode(configured, specs, self, self.changed, real=True, last=last, again_s=0.01, mountinfo=file)

    def record(self, event: NodeEvent) -> None:
        assert event.warning == (event.reason == "GPUNotReady")
        self.recorded.append((event.reason, event.note))

    def changed(self) -> None:
        self.changes += 1


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(5):
        while not holds():  # noqa: ASYNC110 - a look tells nobody
            await asyncio.sleep(0.01)


def busy() -> bool:
    return False


def idle() -> bool:
    return True


async def test_it_waits_until_there_is_a_way_and_records_each_reason_once(tmp_path: Path) -> None:
    site, specs = Site(tmp_path), Specs([none("no spec"), none("no spec"), none("an old spec"), ALL])
    injection = site.injection(specs)
    assert await asyncio.wait_for(injection.mode(runtime), 5) == "cdi"
    notes = [note.partition("available: ")[2].partition(";")[0] for _, note in site.recorded]
    assert notes == ["no spec", "an old spec"]
    assert (injection.problem, injection.withheld, specs.looks) == ("", "", 4)


async def test_where_cdi_is_configured_and_no_card_is_covered_nothing_is_shared(tmp_path: Path) -> None:
    site = Site(tmp_path)
    injection = site.injection(Specs([none("no spec")]), "cdi")
    assert (await injection.mode(runtime), injection.withheld) == ("cdi", "no spec")
    assert site.recorded == [("GPUNotReady", "no spec")]


async def test_specs_that_go_and_come_back_are_reported(tmp_path: Path) -> None:
    site, specs = Site(tmp_path), Specs([ALL, none("gone"), none("gone"), ALL])
    injection = site.injection(specs)
    await injection.mode(runtime)
    following = asyncio.create_task(injection.follow(runtime, busy))
    await until(lambda: specs.looks >= 5)
    following.cancel()
    assert (site.recorded, injection.problem, injection.withheld) == ([("GPUNotReady", "gone")], "", "")


@pytest.mark.parametrize("half", [none("half a file"), ONE_OF_TWO], ids=["no card", "one card less"])
async def test_a_spec_that_is_just_being_written_withholds_nothing(half: Coverage, tmp_path: Path) -> None:
    """The kubelet fails a pod that it admits while no device is healthy."""
    site, specs = Site(tmp_path), Specs([ALL, half, ALL])
    injection = site.injection(specs)
    await injection.mode(runtime)
    before = site.changes
    following = asyncio.create_task(injection.follow(runtime, busy))
    await until(lambda: specs.looks >= 5)
    following.cancel()
    assert (site.recorded, site.changes) == ([], before)


async def test_one_card_that_is_not_covered_costs_no_other(tmp_path: Path) -> None:
    site, specs = Site(tmp_path), Specs([ONE_OF_TWO, ONE_OF_TWO, ALL])
    injection = site.injection(specs)
    assert await injection.mode(runtime) == "cdi"
    assert (injection.problem, injection.withheld, dict(injection.uncovered)) == ("", "", {"GPU-b": "card GPU-b: no"})
    assert injection.problems() == ("card GPU-b: no",)
    before = site.changes
    following = asyncio.create_task(injection.follow(runtime, busy))
    await until(lambda: not injection.uncovered)
    following.cancel()
    assert (site.changes, injection.problems(), site.recorded) == (before + 1, (), [])


async def test_while_the_driver_does_not_answer_the_last_mode_holds(tmp_path: Path) -> None:
    site = Site(tmp_path)
    silent = Specs([none("the driver has not reported its cards yet")], known=False)
    for last in ("environment", "cdi"):
        injection = site.injection(silent, last=last)
        assert await asyncio.wait_for(injection.mode(runtime), 5) == last
        assert (injection.problem, injection.withheld, site.recorded) == ("", "", [])


async def test_after_a_reboot_the_specs_of_a_cdi_node_are_waited_for(tmp_path: Path) -> None:
    """The service that writes them may come a second after the plugin; the NVIDIA runtime is there from the start."""
    site, specs = Site(tmp_path), Specs([none("no spec"), none("no spec"), ALL])
    injection = site.injection(specs, mountinfo=NVIDIA, last="cdi")
    assert await asyncio.wait_for(injection.mode(runtime), 5) == "cdi"
    assert (
        "waiting for the CDI specs that this node had before: no spec; "
        "to use the NVIDIA runtime instead, set mode: environment"
    ) in injection.withheld
    following = asyncio.create_task(injection.follow(runtime, idle))
    await until(lambda: not injection.withheld)
    following.cancel()
    assert [reason for reason, _ in site.recorded] == ["GPUNotReady"]


async def test_specs_that_come_late_replace_the_environment_while_nothing_is_held(tmp_path: Path) -> None:
    site, specs, held = Site(tmp_path), Specs([none("no spec"), ALL]), [True]
    injection = site.injection(specs, mountinfo=NVIDIA)
    assert await injection.mode(runtime) == "environment"
    following = asyncio.create_task(injection.follow(runtime, lambda: not held))
    await until(lambda: specs.looks >= 4)
    assert (injection.chosen, site.recorded) == ("environment", [])
    held.clear()
    await until(lambda: injection.chosen == "cdi")
    following.cancel()
    ((reason, note),) = site.recorded
    assert (reason, "through CDI, no longer through the environment" in note) == ("GPUInjectionMode", True)


async def test_a_change_of_mode_since_the_last_start_is_recorded(tmp_path: Path) -> None:
    site = Site(tmp_path)
    assert await site.injection(Specs([ALL]), last="environment").mode(runtime) == "cdi"
    assert await site.injection(Specs([ALL]), last="cdi").mode(runtime) == "cdi"
    assert [reason for reason, _ in site.recorded] == ["GPUInjectionMode"]


async def test_a_runtime_that_restarts_is_not_taken_for_one_without_cdi(tmp_path: Path) -> None:
    site, versions = Site(tmp_path), ["containerd://2.1.9", UNKNOWN, UNKNOWN]
    injection = site.injection(Specs([ALL]), mountinfo=NVIDIA)
    assert await asyncio.wait_for(injection.mode(versions.pop), 5) == "cdi"
    ((reason, note),) = site.recorded
    assert (reason, "not report a container runtime version" in note) == ("GPUNotReady", True)
