"""Which mode_of the cards come into containers, by the node's runtime."""

import pytest

from deviceplugin.cdi.mode import mode_of


@pytest.mark.parametrize(
    ("runtime", "expected"),
    [
        ("containerd://2.0.0", "cdi"),
        ("containerd://2.1.9", "cdi"),
        ("containerd://v2.3.0-rc.1", "cdi"),
        ("containerd://10.0.0", "cdi"),
        ("containerd://1.7.27", "environment"),
        ("containerd://1.6.0", "environment"),
        ("cri-o://1.33.1", "cdi"),
        ("docker://27.0.1", "environment"),
        ("", "environment"),
    ],
)
def test_a_runtime_that_reads_cdi_without_being_told_to_gets_it(runtime: str, expected: str) -> None:
    assert mode_of("auto", runtime) == expected


def test_what_is_configured_holds_whatever_the_runtime_is() -> None:
    assert (mode_of("cdi", "containerd://1.7.27"), mode_of("environment", "containerd://2.1.9")) == (
        "cdi",
        "environment",
    )
