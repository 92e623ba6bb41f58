"""Requirements of limits by the driver: the first that is missing is named."""

from dataclasses import replace
from pathlib import Path

import pytest

from deviceplugin.isolation.driver_limits import LimitSupport, missing
from deviceplugin.isolation.host_cgroup import cgroup_problem
from tests.support.node.isolating import WITH_LIMITS, limited_card


@pytest.mark.parametrize(
    ("support", "problem"),
    [
        pytest.param(WITH_LIMITS, "", id="everything"),
        pytest.param(replace(WITH_LIMITS, cdi=False), "set mode: cdi", id="no CDI"),
        pytest.param(replace(WITH_LIMITS, cgroup="no cgroup v2"), "no cgroup v2", id="cgroup v1"),
        pytest.param(replace(WITH_LIMITS, uncovered=["GPU-0000"]), "no CDI spec injects", id="no spec"),
        pytest.param(replace(WITH_LIMITS, hookless=["GPU-0000"]), "toolkit 1.20.1 or later", id="no hook"),
        pytest.param(replace(WITH_LIMITS, hookless=["GPU-0001"]), "", id="another card without a hook"),
        pytest.param(LimitSupport(cdi=True, cgroup="v1", hookless=["GPU-0000"], real=False), "", id="simulated"),
    ],
)
def test_what_the_node_lacks_is_named(support: LimitSupport, problem: str) -> None:
    found = missing(limited_card(), support)
    assert (problem in found, bool(found)) == (True, bool(problem))


def test_what_the_card_lacks_is_named() -> None:
    assert "driver 615 or later" in missing(limited_card(limits=False), WITH_LIMITS)
    assert "MIG mode" in missing(limited_card(mig=True), WITH_LIMITS)


@pytest.mark.parametrize("controllers", ["cpuset cpu io memory dmem\n", "misc\n"])
def test_a_host_with_a_controller_for_device_memory_has_what_it_takes(tmp_path: Path, controllers: str) -> None:
    (tmp_path / "cgroup.controllers").write_text(controllers)
    assert cgroup_problem(tmp_path) == ""


def test_a_host_without_such_cgroups_is_told_what_it_lacks(tmp_path: Path) -> None:
    assert cgroup_problem(tmp_path) == f"the host has no cgroup v2 at {tmp_path} (hostCgroup)"
    (tmp_path / "cgroup.controllers").write_text("cpuset dmemory\n")
    assert "neither of the cgroup controllers dmem and misc" in cgroup_problem(tmp_path)
    (tmp_path / "cgroup.controllers").unlink()
    (tmp_path / "cgroup.controllers").mkdir()
    assert "cannot be read" in cgroup_problem(tmp_path)
