"""How cards come into containers: by what there is on the node, and never bare."""

import pytest

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
