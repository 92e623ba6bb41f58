"""How cards come into containers: by what there is on the node, never bare; without a way the plugin waits."""

import asyncio
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from config.settings.deviceplugin import Mode as ConfiguredMode
from deviceplugin.cdi.injection import InjectionMode
from deviceplugin.cdi.mode import InjectionSupport, NoInjectionMode, brings_nvml, mode_of, reads_cdi

LACKING = "no CDI spec of kind nvidia.com/gpu is there"


def support(
    runtime: str = "containerd://2.1.9", lacking: str = "", *, nvidia: bool = False, real: bool = True
) -> InjectionSupport:
    return InjectionSupport(runtime_version=runtime, lacking=lacking, nvidia_runtime=nvidia, real=real)


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
        ("", False),
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
        pytest.param(support("containerd://1.7.27"), "containerd://1.7.27 does not read CDI specs by itself", id="old"),
        pytest.param(support(""), "the container runtime does not read CDI specs", id="unknown"),
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


RUNTIME = "containerd://2.1.9"
NVIDIA = "36 35 98:0 /x /usr/lib/libnvidia-ml.so.580.95.05 ro - ext4 /dev/sda ro"


@dataclass
class Specs:
    """What would bring cards in. lacking: what it says after each look, the last again and again."""

    says: list[str]
    known: bool = True
    lacking: str = "not looked yet"
    looks: int = 0

    def prepare(self) -> None:
        self.lacking = self.says[min(self.looks, len(self.says) - 1)]
        self.looks += 1


@dataclass
class Site:
    folder: Path
    recorded: list[str] = field(default_factory=list)

    def injection(
        self, specs: Specs, configured: ConfiguredMode = "auto", *, mountinfo: str = "", last: str = ""
    ) -> InjectionMode:
        (self.folder / "mountinfo").write_text(mountinfo)
        return InjectionMode(
            configured,
            specs,
            real=True,
            record=self.recorded.append,
            last=last,
            again_s=0.01,
            mountinfo=self.folder / "mountinfo",
        )


async def test_it_waits_until_there_is_a_way_and_tells_each_reason_once(tmp_path: Path) -> None:
    site, specs = Site(tmp_path), Specs(["no spec", "no spec", "an old spec", ""])
    way = site.injection(specs)
    assert await asyncio.wait_for(way.mode(RUNTIME), 5) == "cdi"
    assert [told.partition("containers: ")[2].partition(";")[0] for told in site.recorded] == ["no spec", "an old spec"]
    assert (way.problem, specs.looks) == ("", 4)


async def test_the_nvidia_runtime_will_do(tmp_path: Path) -> None:
    way = Site(tmp_path).injection(Specs(["no spec"]), mountinfo=NVIDIA)
    assert (way.nvidia_runtime, await way.mode(RUNTIME), way.problem) == (True, "environment", "")


async def test_where_cdi_is_configured_what_is_missing_is_told_and_not_waited_for(tmp_path: Path) -> None:
    site = Site(tmp_path)
    way = site.injection(Specs(["no spec"]), "cdi")
    assert (await way.mode(RUNTIME), way.problem, site.recorded) == ("cdi", "no spec", ["no spec"])


async def test_specs_that_go_and_come_back_are_told(tmp_path: Path) -> None:
    site, specs = Site(tmp_path), Specs(["", "gone", ""])
    way = site.injection(specs)
    await way.mode(RUNTIME)
    following = asyncio.create_task(way.follow())
    async with asyncio.timeout(5):
        while specs.looks < 4:  # noqa: ASYNC110 - a look tells nobody
            await asyncio.sleep(0.01)
    following.cancel()
    assert (site.recorded, way.problem) == (["gone"], "")


async def test_while_the_driver_does_not_answer_the_last_mode_holds(tmp_path: Path) -> None:
    site = Site(tmp_path)
    silent = Specs(["the driver has not named its cards yet"], known=False)
    assert await asyncio.wait_for(site.injection(silent, last="environment").mode(RUNTIME), 5) == "environment"
    assert site.recorded == []


async def test_what_is_there_counts_more_than_the_last_mode(tmp_path: Path) -> None:
    site = Site(tmp_path)
    assert await site.injection(Specs([""]), last="environment").mode(RUNTIME) == "cdi"
    waiting = asyncio.create_task(site.injection(Specs(["no spec"]), last="environment").mode(RUNTIME))
    async with asyncio.timeout(5):
        while not site.recorded:  # noqa: ASYNC110 - as above
            await asyncio.sleep(0.01)
    assert not waiting.done()
    waiting.cancel()
