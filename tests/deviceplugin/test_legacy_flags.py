"""The legacy device plugin's command lines, and what becomes of them."""

import pytest

from deviceplugin.legacy_flags import as_ours


@pytest.mark.parametrize(
    ("given", "ours", "ignored"),
    [
        pytest.param("", "run", "", id="nothing"),
        pytest.param(
            "-logtostderr --v=5 --memory-unit=GiB", "run --memory-unit=GiB", "--logtostderr --v", id="manifest"
        ),
        pytest.param(
            "--memory-unit=MiB --health-check=true", "run --memory-unit=MiB --health-check=true", "", id="equals signs"
        ),
        pytest.param("-memory-unit MiB -health-check", "run --memory-unit MiB --health-check=true", "", id="one dash"),
        pytest.param("--health-check=false", "run --health-check=false", "", id="no health check"),
        pytest.param("--mps=false --mps --mps=true", "run", "--mps", id="a flag three times"),
        pytest.param(
            "--query-kubelet --kubelet-address 10.0.0.1 --kubelet-port=10250 --timeout 10 --mode cdi",
            "run --mode cdi",
            "--query-kubelet --kubelet-address --kubelet-port --timeout",
            id="asking the kubelet",
        ),
        pytest.param(
            "--client-cert=/c --client-key /k --token", "run", "--client-cert --client-key --token", id="no value left"
        ),
        pytest.param("--mps-pipe=/var/run/nvidia-mps --mps=true", "run", "--mps-pipe --mps", id="MPS"),
        pytest.param("run --mps=false --listen :0", "run --listen :0", "--mps", id="with the command"),
        pytest.param("status --timeout 3", "status --timeout 3", "", id="another command"),
        pytest.param("--help", "--help", "", id="help"),
        pytest.param("--version", "--version", "", id="version"),
        pytest.param("--config --mps", "run --config", "--mps", id="a flag is no value"),
        pytest.param("--mps-pip=x", "run --mps-pip=x", "", id="a misspelt flag stays a mistake"),
    ],
)
def test_a_command_line_of_the_legacy_plugin_becomes_ours(given: str, ours: str, ignored: str) -> None:
    line = as_ours(given.split())
    assert (line.arguments, list(line.ignored)) == (ours.split(), ignored.split())


def test_no_value_of_an_ignored_flag_is_repeated() -> None:
    line = as_ours(["--token=secret", "--client-key", "secret"])
    assert "secret" not in " ".join([*line.arguments, *line.ignored])
