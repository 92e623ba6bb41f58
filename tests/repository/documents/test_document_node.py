from pathlib import Path

from config.settings.deviceplugin import DevicePluginConfiguration
from config.settings.load import load
from tests.support.documents.node_configuration_document import EXAMPLE, node_markdown


def test_the_example_in_the_document_is_a_configuration(tmp_path: Path) -> None:
    file = tmp_path / "example.yaml"
    file.write_text(EXAMPLE, encoding="utf-8")
    read = load(DevicePluginConfiguration, file=file, environ={}, flags={"nodeName": "n"}, env_prefix="X_")

    assert (read.mode, read.monitor, read.reconcile_interval_s) == ("cdi", "evict", 120)


def test_durations_have_their_bounds_in_units() -> None:
    assert "| `reconcileInterval` | duration, at least 30s, at most 1h | `1m` |" in node_markdown()
