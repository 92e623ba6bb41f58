"""Real cards come into a container by NVIDIA's specs, or as device nodes, or not at all."""

import json
import stat
from pathlib import Path

import pytest

from deviceplugin.cdi.nvidia_edits import NvidiaEdits
from deviceplugin.cdi.spec import CdiError
from deviceplugin.driver.cards import DriverCard

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
        self.etc, self.dev, self.state = folder / "etc-cdi", folder / "dev", folder / "state"
        for made in (self.etc, self.dev):
            made.mkdir()
        for name in ("nvidia3", "nvidiactl", "nvidia-uvm"):
            (self.dev / name).touch()
        self.now_s = 0.0
        self.calls = folder / "calls"
        self.ctk = folder / "nvidia-ctk"

    def edits(self) -> NvidiaEdits:
        return NvidiaEdits(
            lambda: [CARD],
            [self.etc],
            self.state / "cdi" / "nvidia.json",
            str(self.ctk),
            device_dir=self.dev,
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
    assert (made.toolkit_missing, made.problems, site.calls.exists()) == ("", (), False)


def test_without_the_toolkit_there_are_device_nodes_and_a_report(site: Site) -> None:
    made = site.edits()
    made.prepare()
    nodes = made.edits(["GPU-a"]).lists["deviceNodes"]
    assert [node["path"] for node in nodes] == ["/dev/nvidia3", "/dev/nvidiactl", "/dev/nvidia-uvm"]  # type: ignore[index]
    assert "no CDI spec of kind nvidia.com/gpu names card GPU-a" in made.toolkit_missing
    assert "nvidia-ctk is not installed here" in made.toolkit_missing


def test_where_only_nvidia_ctk_is_there_it_generates_a_spec(site: Site) -> None:
    site.toolkit(f"""out=$(echo "$3" | cut -d= -f2)\ncat > "$out" <<'DOCUMENT'\n{nvidia_text()}\nDOCUMENT""")
    made = site.edits()
    made.prepare()
    assert "libcuda" in json.dumps(made.edits(["GPU-a"]).wire())
    assert made.toolkit_missing == ""


def test_a_program_that_fails_is_not_called_all_the_time(site: Site) -> None:
    site.toolkit("echo broken >&2; exit 1")
    made = site.edits()
    for now_s in (0, 1, 599):
        site.now_s = now_s
        made.prepare()
    assert site.calls.read_text().count("called") == 1
    made.edits(["GPU-a"])
    assert "broken" in made.toolkit_missing
    site.now_s = 601
    made.prepare()
    assert site.calls.read_text().count("called") == 2


def test_what_is_missing_is_known_before_any_container_asks(site: Site) -> None:
    made = site.edits()
    made.prepare()
    assert "nvidia-ctk is not installed here" in made.toolkit_missing
    (site.etc / "nvidia.json").write_text(nvidia_text())
    made.prepare()
    assert made.toolkit_missing == ""


def test_where_no_spec_can_be_generated_there_are_device_nodes_and_a_report(site: Site) -> None:
    site.toolkit("exit 0")
    site.state.touch()
    made = site.edits()
    made.prepare()
    assert "cannot write a CDI spec" in made.toolkit_missing
    assert "/dev/nvidia3" in json.dumps(made.edits(["GPU-a"]).wire())


def test_a_file_that_disappears_meanwhile_is_ignored(site: Site) -> None:
    (site.etc / "gone.json").symlink_to(site.etc / "nowhere")
    (site.etc / "nvidia.json").write_text(nvidia_text())
    made = site.edits()
    assert "libcuda" in json.dumps(made.edits(["GPU-a"]).wire())


def test_a_link_to_itself_is_a_problem_and_affects_nothing_else(site: Site) -> None:
    (site.etc / "nvidia.json").write_text(nvidia_text())
    (site.etc / "loop.json").symlink_to("loop.json")
    made = site.edits()
    made.prepare()
    assert made.toolkit_missing == ""
    assert "loop.json" in str(made.problems)


def test_a_spec_that_appears_or_changes_is_used_from_then_on(site: Site) -> None:
    made = site.edits()
    assert "libcuda" not in json.dumps(made.edits(["GPU-a"]).wire())
    (site.etc / "nvidia.json").write_text(nvidia_text(minor=0))
    made.edits(["GPU-a"])
    assert "out of date" in made.toolkit_missing
    (site.etc / "nvidia.json").write_text(nvidia_text() + " ")
    assert "libcuda" in json.dumps(made.edits(["GPU-a"]).wire())
    assert made.toolkit_missing == ""


def test_a_spec_that_cannot_be_read_is_a_problem_and_affects_nothing_else(site: Site) -> None:
    (site.etc / "broken.json").write_text("[")
    (site.etc / "nvidia.json").write_text(nvidia_text())
    made = site.edits()
    assert "libcuda" in json.dumps(made.edits(["GPU-a"]).wire())
    (problem,) = made.problems
    assert "broken.json" in problem


def test_a_card_that_the_driver_does_not_name_is_refused(site: Site) -> None:
    with pytest.raises(CdiError, match="the driver has no card GPU-z"):
        site.edits().edits(["GPU-z"])


def test_a_card_without_a_device_node_is_refused(site: Site) -> None:
    (site.dev / "nvidia3").unlink()
    with pytest.raises(CdiError, match="has no device node"):
        site.edits().edits(["GPU-a"])
