"""Real cards come into a container by NVIDIA's specs, or not at all."""

import json
import stat
from dataclasses import replace
from pathlib import Path

import pytest

from deviceplugin.cdi import limit_hooks
from deviceplugin.cdi.host_nodes import HostNodes
from deviceplugin.cdi.mode import Coverage
from deviceplugin.cdi.nvidia_edits import NvidiaEdits
from deviceplugin.cdi.spec import CdiError
from deviceplugin.driver.cards import DriverCard, DriverCards
from scheduler.process.clock import Clock

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
        self.dev = folder / "dev"
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
            HostNodes(self.dev, []),
            clock=Clock(lambda: self.now_s),
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
    assert (made.coverage.lacking, made.problems, site.calls.exists()) == ("", (), False)


def test_cards_that_the_driver_can_limit_are_hookless_if_their_spec_has_no_hook(site: Site) -> None:
    other = replace(CARD, index=1, uuid="GPU-b", minor=4)
    site.driver = DriverCards("615.10", (replace(CARD, limits=True), other))
    (site.etc / "nvidia.yaml").write_text(nvidia_text())
    made = site.edits()
    assert (made.prepared, made.hookless) == (False, frozenset())
    made.prepare()
    assert (made.prepared, set(made.hookless)) == (True, {"GPU-a"})
    document = json.loads(nvidia_text())
    args = ["nvidia-cdi-hook", limit_hooks.NAME, "--gpu-id", "GPU-a"]
    document["devices"][0]["containerEdits"]["hooks"] = [{"hookName": "createRuntime", "path": "/h", "args": args}]
    (site.etc / "nvidia.yaml").write_text(json.dumps(document))
    made.prepare()
    assert made.hookless == frozenset()


def test_before_the_driver_has_named_its_cards_nothing_is_known(site: Site) -> None:
    (site.etc / "nvidia.json").write_text(nvidia_text())
    known, site.driver = site.driver, DriverCards("", ())
    made = site.edits()
    made.prepare()
    assert (made.known, made.coverage.lacking) == (False, "the driver has not reported its cards yet")
    site.driver = known
    made.prepare()
    assert (made.known, made.coverage.lacking) == (True, "")


def test_cards_that_are_not_shared_lack_nothing(site: Site) -> None:
    site.driver = DriverCards("580.95.05", (replace(CARD, mig=True),))
    made = site.edits()
    made.prepare()
    assert made.coverage.lacking == ""


def test_where_only_nvidia_ctk_is_there_it_generates_a_spec(site: Site) -> None:
    site.toolkit(f"""out=$(echo "$3" | cut -d= -f2)\ncat > "$out" <<'DOCUMENT'\n{nvidia_text()}\nDOCUMENT""")
    made = site.edits()
    made.prepare()
    assert "libcuda" in json.dumps(made.edits(["GPU-a"]).wire())
    assert made.coverage.lacking == ""


def test_a_program_that_fails_is_not_called_all_the_time(site: Site) -> None:
    site.toolkit("echo broken >&2; exit 1")
    made = site.edits()
    for now_s in (0, 1, 599):
        site.now_s = now_s
        made.prepare()
    assert site.calls.read_text().count("called") == 1
    assert "broken" in made.coverage.lacking
    site.now_s = 601
    made.prepare()
    assert site.calls.read_text().count("called") == 2


def test_where_no_spec_can_be_generated_the_reason_is_told(site: Site) -> None:
    site.toolkit("exit 0")
    site.state.touch()
    made = site.edits()
    made.prepare()
    assert "cannot write a CDI spec" in made.coverage.lacking


def test_a_link_to_itself_is_a_problem_and_affects_nothing_else(site: Site) -> None:
    (site.etc / "nvidia.json").write_text(nvidia_text())
    (site.etc / "loop.json").symlink_to("loop.json")
    made = site.edits()
    made.prepare()
    assert made.coverage.lacking == ""
    assert "loop.json" in str(made.problems)


def test_a_spec_that_appears_or_changes_is_used_from_then_on(site: Site) -> None:
    made = site.edits()
    for found in ("", nvidia_text(minor=0)):
        (site.etc / "nvidia.json").write_text(found)
        with pytest.raises(CdiError):
            made.edits(["GPU-a"])
    made.prepare()
    assert "out of date" in made.coverage.lacking
    (site.etc / "nvidia.json").write_text(nvidia_text() + " ")
    assert "libcuda" in json.dumps(made.edits(["GPU-a"]).wire())
    made.prepare()
    assert made.coverage == Coverage()


def test_one_card_of_three_that_is_not_covered_is_one_card(site: Site) -> None:
    others = tuple(replace(CARD, index=minor, uuid=f"GPU-{minor}", minor=minor) for minor in (5, 6))
    site.driver = DriverCards("580.95.05", (CARD, *others))
    (site.etc / "nvidia.json").write_text(nvidia_text())
    made = site.edits()
    made.prepare()
    assert (made.coverage.some, set(made.coverage.uncovered)) == (True, {"GPU-5", "GPU-6"})
    assert made.coverage.lacking.startswith("card GPU-5 cannot be injected into containers: ")
    assert "; 1 more cannot be injected either; nvidia-ctk" in made.coverage.lacking.replace(
        str(site.ctk), "nvidia-ctk"
    )
    assert "libcuda" in json.dumps(made.edits(["GPU-a"]).wire())


def test_where_no_card_is_covered_the_specs_that_cannot_be_read_are_named(site: Site) -> None:
    (site.etc / "nvidia.json").write_text('{"kind": "nvidia.com/gpu"}')
    made = site.edits()
    made.prepare()
    assert not made.coverage.some
    assert "nvidia.json: cdiVersion is None" in made.coverage.lacking


def test_a_spec_of_nodes_that_the_host_lacks_is_not_used(site: Site) -> None:
    (site.etc / "nvidia.json").write_text(nvidia_text())
    site.dev.mkdir()
    made = site.edits()
    made.prepare()
    assert "names device nodes that do not exist: /dev/nvidia3" in made.coverage.lacking
    with pytest.raises(CdiError, match="names device nodes that do not exist"):
        made.edits(["GPU-a"])
    (site.dev / "nvidia3").symlink_to("/dev/null")
    made.prepare()
    assert made.coverage == Coverage()


def test_the_device_nodes_of_a_card_are_those_of_the_minor_that_the_driver_names_now(site: Site) -> None:
    site.dev.mkdir()
    (site.dev / "nvidia3").symlink_to("/dev/null")
    made = site.edits()
    assert made.device_nodes(["GPU-a"]) == {"/dev/nvidia3": "/dev/nvidia3"}
    assert made.device_nodes(["GPU-a", "GPU-z"]) == {}
    site.driver = DriverCards("580.95.05", (replace(CARD, minor=None),))
    assert made.device_nodes(["GPU-a"]) == {}


def test_a_card_that_the_driver_does_not_name_is_refused(site: Site) -> None:
    with pytest.raises(CdiError, match="the driver does not list card GPU-z"):
        site.edits().edits(["GPU-z"])
