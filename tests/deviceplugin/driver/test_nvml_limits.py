"""The limits that the driver reports for a cgroup on a card."""

from collections.abc import Callable, Mapping
from typing import Any

import pynvml  # type: ignore[import-untyped] # nvidia-ml-py has no annotations
import pytest

from deviceplugin.driver.cards import CardFailed, MemoryLimits, NoAnswer
from deviceplugin.driver.nvml import NvmlSource
from tests.support.node.nvml_double import MIB, NvmlDouble, card

UNLIMITED: int = pynvml.NVML_DEVICE_MEMORY_LIMIT_MAX
CALL = "nvmlDeviceGetMemoryLimits_v1"


def limiting(cgroups: Mapping[str, tuple[int, int, int]], gone: str = "") -> Callable[[Any], None]:
    """Return the driver's call: cgroup -> soft and hard limit and use, in bytes."""

    def call(asked: Any) -> None:  # noqa: ANN401 # as pynvml
        if asked.nameSpace == gone:
            raise pynvml.NVMLError_OperatingSystem
        if asked.nameSpace not in cgroups:
            raise pynvml.NVMLError_NotFound
        asked.softLimit, asked.hardLimit, asked.currentUsed = cgroups[asked.nameSpace]

    return call


def source(**answers: object) -> NvmlSource:
    made = NvmlSource(NvmlDouble(card(0, **answers)))
    made.open()
    return made


def test_the_limits_of_each_cgroup_are_read() -> None:
    cgroups = {
        "/host/cgroup/a": (0, 4096 * MIB, 700 * MIB + 5),
        "/host/cgroup/b": (1024 * MIB, UNLIMITED, 0),
        "/host/cgroup/none": (0, UNLIMITED, 300 * MIB),
    }
    made = source(**{CALL: limiting(cgroups, gone="/host/cgroup/gone")})
    made.describe(0)
    asked = ["/host/cgroup/a", "/host/cgroup/b", "/host/cgroup/none", "/host/cgroup/other", "/host/cgroup/gone"]
    assert made.memory_limits("GPU-0", asked) == {
        "/host/cgroup/a": MemoryLimits(hard_mib=4096, soft_mib=0, used_mib=700),
        "/host/cgroup/b": MemoryLimits(hard_mib=None, soft_mib=1024, used_mib=0),
    }


@pytest.mark.parametrize(
    ("answer", "limits", "absent"),
    [
        pytest.param(limiting({}), True, (), id="no limit is set"),
        pytest.param(limiting({"/sys/fs/cgroup": (0, MIB, 0)}), True, (), id="a limit is set"),
        pytest.param(pynvml.NVMLError_NotSupported(), False, (), id="not on this card"),
        pytest.param(pynvml.NVMLError_FunctionNotFound(), False, (), id="driver before 615"),
        pytest.param(
            pynvml.NVMLError_OperatingSystem(),
            False,
            ("MemoryLimits: NVML returned 'The operating system has blocked the request.'",),
            id="cgroup v1",
        ),
        pytest.param(
            pynvml.NVMLError_InvalidArgument(), False, ("MemoryLimits: NVML returned 'Invalid Argument'",), id="other"
        ),
    ],
)
def test_a_card_can_be_limited_if_the_driver_answers(answer: object, *, limits: bool, absent: tuple[str, ...]) -> None:
    found = source(**{CALL: answer}).describe(0)
    assert found.limits == limits
    assert found.absent == absent
    assert found.memory_mib == 80 * 1024 - 640


def test_a_split_card_is_not_asked() -> None:
    asked: list[object] = []
    found = source(**{CALL: asked.append, "nvmlDeviceGetMigMode": [1, 1]}).describe(0)
    assert found.mig
    assert not found.limits
    assert asked == []


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        pytest.param(pynvml.NVMLError_GpuIsLost(), CardFailed, id="lost"),
        pytest.param(pynvml.NVMLError_NoPermission(), NoAnswer, id="denied"),
    ],
)
def test_an_error_names_the_card_and_the_call(error: Exception, kind: type[Exception]) -> None:
    double = NvmlDouble(card(0, **{CALL: limiting({})}))
    made = NvmlSource(double)
    made.open()
    made.describe(0)
    double.nvml_cards[0].answers[CALL] = error
    with pytest.raises(kind, match="card GPU-0: memory limits"):
        made.memory_limits("GPU-0", ["/host/cgroup/a"])
