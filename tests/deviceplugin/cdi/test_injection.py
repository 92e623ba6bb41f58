"""The injection mode is waited for, reported while it is missing, and remembered for a driver that does not answer."""

import asyncio
from dataclasses import dataclass, field
from pathlib import Path

from config.settings.deviceplugin import Mode as ConfiguredMode
from deviceplugin.cdi.injection import InjectionMode

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
