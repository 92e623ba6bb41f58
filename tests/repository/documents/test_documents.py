"""Generated documents are what their sources say, and examples in them are configurations."""

import json
from pathlib import Path
from typing import Final

import pytest

from config.settings.deviceplugin import DevicePluginConfiguration
from config.settings.load import load
from config.settings.scheduler import SchedulerConfiguration, configuration_model, resolve
from config.settings.schema import name_in_file
from scheduler.plugins.registry import describe
from tests.support.documents import node_configuration_document as of_the_node
from tests.support.documents.configuration_document import EXAMPLE, configuration_markdown
from tests.support.documents.generated import FROM_HERE, GENERATED, current
from tests.support.repository import ROOT


@pytest.mark.parametrize("name", GENERATED)
def test_a_generated_document_is_current(name: str) -> None:
    path = ROOT / name
    assert path.read_text(encoding="utf-8") == current(path, GENERATED[name]), f"{name} is out of date: run `make docs`"


def test_what_is_written_by_hand_above_the_marker_stays(tmp_path: Path) -> None:
    document = tmp_path / "document.md"
    document.write_text(f"by hand\n\n{FROM_HERE}: a reason -->\n\nold\n", encoding="utf-8")
    assert current(document, lambda: "new\n") == f"by hand\n\n{FROM_HERE}: a reason -->\n\nnew\n"


def test_a_document_without_the_marker_is_generated_as_a_whole(tmp_path: Path) -> None:
    document = tmp_path / "document.md"
    assert current(document, lambda: "new\n") == "new\n"
    document.write_text("old\n", encoding="utf-8")
    assert current(document, lambda: "new\n") == "new\n"


_CONFIGURATIONS: Final = (SchedulerConfiguration, DevicePluginConfiguration)


def test_the_example_in_the_document_is_a_configuration(tmp_path: Path) -> None:
    file = tmp_path / "example.yaml"
    file.write_text(EXAMPLE, encoding="utf-8")
    read = load(configuration_model(describe()), file=file, environ={}, flags={}, env_prefix="X_")

    assert [profile.scheduler_names[0] for profile in resolve(read)] == ["gpushare-scheduler", "gpushare-training"]


def test_every_field_and_every_plugin_is_in_the_document() -> None:
    text = configuration_markdown(describe())

    assert all(f"| {plugin} |" in text for plugin in (described.name for described in describe()))
    assert "| `memoryUnitMiB` | integer, 1 to 1048576 | `1024` |" in text
    assert "| `bindTimeout` | duration | `4s` |" in text
    assert all(field.description for field in SchedulerConfiguration.model_fields.values())


def test_the_smallest_unit_is_one_answer_in_settings_chart_and_documents() -> None:
    in_settings = {model.model_fields["memory_unit_mib"].metadata[0].ge for model in _CONFIGURATIONS}
    chart = json.loads((ROOT / "deploy/chart/gpushare-scheduler/values.schema.json").read_text(encoding="utf-8"))
    in_chart = chart["properties"]["scheduler"]["properties"]["config"]["properties"]["memoryUnitMiB"]["minimum"]
    told = {page: (ROOT / "docs" / page).read_text(encoding="utf-8") for page in ("faq.md", "node.md", "tuning.md")}

    # A cluster of the legacy plugin may count in MiB: docs/migrate.md.
    assert (in_settings, in_chart) == ({1}, 1)
    assert [page for page, text in told.items() if "128 or more" not in text and "128 MiB or more" not in text] == []
    assert [page for page, text in told.items() if "at the least" in text] == []


def test_what_is_said_to_be_below_is_below() -> None:
    text = configuration_markdown(describe())

    fields = [name_in_file(name, field) for name, field in SchedulerConfiguration.model_fields.items()]
    named = [field for field in fields if f"| `{field}` | object | see below |" in text]
    assert {"leaderElection", "resources"} <= set(named)
    assert [field for field in named if f"### `{field}`" not in text] == []


def test_the_example_of_a_node_is_a_configuration(tmp_path: Path) -> None:
    file = tmp_path / "example.yaml"
    file.write_text(of_the_node.EXAMPLE, encoding="utf-8")
    read = load(DevicePluginConfiguration, file=file, environ={}, flags={"nodeName": "n"}, env_prefix="X_")

    assert (read.mode, read.monitor, read.reconcile_interval_s) == ("cdi", "evict", 120)


def test_durations_have_their_bounds_in_units() -> None:
    assert "| `reconcileInterval` | duration, 30s to 1h | `1m` |" in of_the_node.node_markdown()
