"""Real cards come into a container by NVIDIA's specs, or not at all."""

import json
import stat
from dataclasses import replace
from pathlib import Path

import pytest

from deviceplugin.cdi.nvidia_edits import NvidiaEdits
from deviceplugin.cdi.spec import CdiError
from deviceplugin.driver.cards import DriverCard, DriverCards

CARD = DriverCard(index=0, uuid="GPU-a", model="M", memory_mib=1024, minor=3)


def nvidia_text(minor: int = 3) -> str:
    library = {"hostPath": "/usr/lib/libcuda.so", "containerPath": "/usr/lib/libcuda.so"}
    return json.dumps(
        {
            "cdiVersion": "0.6.0",
            "kind": "nvidia.com/gpu",
            "containerEdits": {"mounts": [library]},
            "devices": [{"name": "GPU-a", "containerEdits": {"deviceNodes": [{"path": f"/dev/nvidia{minor}"}]}}],
        }
    )


class Site:
    """Folders of a machine, and a clock that is moved by hand."""

    def __init__(self, folder: Path) -> None:
        self.etc, self.state = folder / "etc-cdi", folder / "state"
        self.etc.mkdir()
        self.driver = DriverCards("580.95.05", (CARD,))
        self.now_s = 0.0
        self.calls = folder / "calls"
        self.ctk = folder / "nvidia-ctk"

    def edits(self) -> NvidiaEdits:
        return NvidiaEdits(
            lambda: self.driver,
            [self.etc],
            self.state / "cdi" / "nvidia.json",
            str(self.ctk),
            now_s=lambda: self.now_s,
        )

    def toolkit(self, script: str) -> None:
        self.ctk.write_text(f"#!/bin/sh\necho called >> {self.calls}\n{script}\n")
        self.ctk.chmod(self.ctk.stat().st_mode | stat.S_IXUSR)


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


def test_the_toolkits_spec_brings_everything(site: Site) -> None:
    (site.etc / "nvidia.yaml").write_text(nvidia_text())
    made = site.edits()
    made.prepare()
    text = json.dumps(made.edits(["GPU-a"]).wire())
    assert "/dev/nvidia3" in text
    assert "libcuda" in text
    assert (made.lacking, made.problems, site.calls.exists()) == ("", (), False)


def test_without_the_toolkit_nothing_comes_in_and_the_reason_is_told(site: Site) -> None:
    made = site.edits()
    made.prepare()
    with pytest.raises(CdiError, match=r"no CDI spec of kind nvidia\.com/gpu is there"):
        made.edits(["GPU-a"])
    assert "no CDI spec of kind nvidia.com/gpu is there" in made.lacking
    assert "nvidia-ctk is not installed here" in made.lacking


def test_before_the_driver_has_named_its_cards_nothing_is_known(site: Site) -> None:
    (site.etc / "nvidia.json").write_text(nvidia_text())
    known, site.driver = site.driver, DriverCards("", ())
    made = site.edits()
    made.prepare()
    assert (made.known, made.lacking) == (False, "the driver has not named its cards yet")
    site.driver = known
    made.prepare()
    assert (made.known, made.lacking) == (True, "")


def test_cards_that_are_not_shared_lack_nothing(site: Site) -> None:
    site.driver = DriverCards("580.95.05", (replace(CARD, mig=True),))
    made = site.edits()
    made.prepare()
    assert made.lacking == ""


def test_where_only_nvidia_ctk_is_there_it_generates_a_spec(site: Site) -> None:
    site.toolkit(f"""out=$(echo "$3" | cut -d= -f2)\ncat > "$out" <<'DOCUMENT'\n{nvidia_text()}\nDOCUMENT""")
    made = site.edits()
    made.prepare()
    assert "libcuda" in json.dumps(made.edits(["GPU-a"]).wire())
    assert made.lacking == ""


def test_a_program_that_fails_is_not_called_all_the_time(site: Site) -> None:
    site.toolkit("echo broken >&2; exit 1")
    made = site.edits()
    for now_s in (0, 1, 599):
        site.now_s = now_s
        made.prepare()
    assert site.calls.read_text().count("called") == 1
    assert "broken" in made.lacking
    site.now_s = 601
    made.prepare()
    assert site.calls.read_text().count("called") == 2


def test_where_no_spec_can_be_generated_the_reason_is_told(site: Site) -> None:
    site.toolkit("exit 0")
    site.state.touch()
    made = site.edits()
    made.prepare()
    assert "cannot write a CDI spec" in made.lacking


def test_a_link_to_itself_is_a_problem_and_affects_nothing_else(site: Site) -> None:
    (site.etc / "nvidia.json").write_text(nvidia_text())
    (site.etc / "loop.json").symlink_to("loop.json")
    made = site.edits()
    made.prepare()
    assert made.lacking == ""
    assert "loop.json" in str(made.problems)


def test_a_spec_that_appears_or_changes_is_used_from_then_on(site: Site) -> None:
    made = site.edits()
    for found in ("", nvidia_text(minor=0)):
        (site.etc / "nvidia.json").write_text(found)
        with pytest.raises(CdiError):
            made.edits(["GPU-a"])
    assert "out of date" in made.lacking
    (site.etc / "nvidia.json").write_text(nvidia_text() + " ")
    assert "libcuda" in json.dumps(made.edits(["GPU-a"]).wire())
    assert made.lacking == ""


def test_a_card_that_the_driver_does_not_name_is_refused(site: Site) -> None:
    with pytest.raises(CdiError, match="the driver has no card GPU-z"):
        site.edits().edits(["GPU-z"])


def test_a_card_without_a_device_node_is_refused(site: Site) -> None:
    (site.etc / "nvidia.json").write_text(nvidia_text(minor=4).replace("GPU-a", "all"))
    with pytest.raises(CdiError, match="has no device node"):
        site.edits().edits(["GPU-a"])
