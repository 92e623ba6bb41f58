"""The chart, as far as it can be judged without helm; `e2e/deploy` renders and installs it."""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

import pytest
import yaml
from pydantic import BaseModel, ValidationError

from config.protocol import names
from config.settings.deviceplugin import DevicePluginConfiguration, HamiCore, Kubelet, Mps
from config.settings.isolation import IsolationMechanism
from config.settings.leader_election import LeaderElectionSection
from config.settings.scheduler import SchedulerConfiguration
from config.settings.schema import name_in_file
from tests.support.documents import api_versions
from tests.support.documents.api_versions import Kind
from tests.support.repository import ROOT

CHART: Final = ROOT / "deploy" / "chart" / "gpushare-scheduler"
TEMPLATES: Final = sorted((CHART / "templates").glob("*.yaml"))
SCHEMA: Final = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))
VALUES: Final = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
DOCUMENT: Final = (ROOT / "docs" / "develop" / "chart-kinds.md").read_text(encoding="utf-8")
TYPES: Final = {"object": dict, "array": list, "string": str, "boolean": bool, "integer": int}
# Helm hands these to every chart.
OF_HELM: Final = {"global"}


def chart() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((CHART / "Chart.yaml").read_text(encoding="utf-8"))
    return found


def kinds(text: str) -> set[Kind]:
    """Of every object that a template may render, or a manifest holds."""
    return {Kind(*found) for found in re.findall(r"^apiVersion: (\S+)\nkind: (\S+)$", text, re.MULTILINE)}


def sections(schema: Mapping[str, Any], values: object, path: str = "") -> Iterator[tuple[str, Mapping[str, Any], Any]]:
    """(path, schema, default) of each section of values whose names the schema knows."""
    if "properties" in schema:
        yield path, schema, values
        for name, below in schema["properties"].items():
            yield from sections(below, values.get(name) if isinstance(values, dict) else None, f"{path}.{name}")


def has_all_its_names(path: str) -> bool:
    """Whether values.yaml has a default for each name: not in what says only how it differs from a default."""
    partial = (".config", ".isolationMechanism", ".resources")
    return not path.endswith(partial) and ".config." not in path and ".prometheusRule.alerts" not in path


def fields(model: type[BaseModel]) -> set[str]:
    """As a configuration file names them."""
    return {name_in_file(name, field) for name, field in model.model_fields.items()}


def test_it_installs_on_the_versions_that_the_table_is_about() -> None:
    assert chart()["kubeVersion"] == f">={api_versions.OLDEST}.0-0"


def test_the_table_lists_nothing_that_no_template_renders() -> None:
    rendered = {kind for path in TEMPLATES for kind in kinds(path.read_text(encoding="utf-8"))}
    assert rendered == {*api_versions.SINCE, *api_versions.OF_OTHERS}


def test_the_document_says_from_when_on_each_kind_is_served() -> None:
    section = DOCUMENT.partition("## The kinds of the chart\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| `(\S+)` \| (.+) \| (\S+) \|$", section, re.MULTILINE)

    assert {
        Kind(version, kind): since for version, listed, since in rows for kind in re.findall(r"`(\w+)`", listed)
    } == {
        **{kind: str(since) for kind, since in api_versions.SINCE.items()},
        **dict.fromkeys(api_versions.OF_OTHERS, "any"),
    }


def test_the_schema_knows_every_value_and_no_other() -> None:
    known = {path: set(schema["properties"]) - OF_HELM for path, schema, _ in sections(SCHEMA, VALUES)}
    given = {path: set(values or ()) for path, _, values in sections(SCHEMA, VALUES)}

    assert {path: found for path, found in given.items() if has_all_its_names(path)} == {
        path: found for path, found in known.items() if has_all_its_names(path)
    }
    assert all(given[path] <= known[path] for path in known)


def test_the_schema_refuses_what_it_does_not_know() -> None:
    assert [
        path for path, schema, _ in sections(SCHEMA, VALUES) if schema.get("additionalProperties") is not False
    ] == []


def test_every_default_is_of_the_type_that_the_schema_wants() -> None:
    typed = [
        (f"{path}.{name}", TYPES[below["type"]], values[name])
        for path, schema, values in sections(SCHEMA, VALUES)
        for name, below in schema["properties"].items()
        if "type" in below and isinstance(values, dict) and name in values
    ]
    assert typed
    assert [path for path, wanted, value in typed if not isinstance(value, wanted)] == []


@pytest.mark.parametrize(
    ("path", "model", "of_the_node"),
    [
        pytest.param("scheduler.config", SchedulerConfiguration, set(), id="scheduler"),
        pytest.param("devicePlugin.config", DevicePluginConfiguration, {"nodeName", "podUid"}, id="device plugin"),
        pytest.param("scheduler.config.leaderElection", LeaderElectionSection, set(), id="leader election"),
        pytest.param("devicePlugin.config.kubelet", Kubelet, set(), id="kubelet"),
        pytest.param("devicePlugin.config.mps", Mps, set(), id="MPS"),
        pytest.param("devicePlugin.config.hamiCore", HamiCore, set(), id="HAMi-core"),
        pytest.param("devicePlugin.isolationMechanism", IsolationMechanism, set(), id="a description of isolation"),
    ],
)
def test_the_schema_knows_the_settings_of_the_programs(
    path: str, model: type[BaseModel], of_the_node: set[str]
) -> None:
    known = SCHEMA
    for name in path.split("."):
        known = known["properties"][name]
    assert set(known["properties"]) == fields(model) - of_the_node


def test_the_chart_requires_every_value_that_has_a_default() -> None:
    required = {path: set(schema.get("required", ())) for path, schema, _ in sections(SCHEMA, VALUES)}
    known = {path: set(schema["properties"]) - OF_HELM for path, schema, _ in sections(SCHEMA, VALUES)}

    assert {path: found for path, found in required.items() if has_all_its_names(path)} == {
        path: found for path, found in known.items() if has_all_its_names(path)
    }


def test_the_chart_mounts_what_the_program_takes_for_the_directory_of_mps() -> None:
    text = (CHART / "templates" / "device-plugin-daemonset.yaml").read_text(encoding="utf-8")
    directory = SCHEMA["properties"]["devicePlugin"]["properties"]["config"]["properties"]["mps"]["properties"][
        "directory"
    ]

    assert set(re.findall(r'dig "mps" "directory" "(\S+)"', text)) == {Mps().directory}
    with pytest.raises(ValidationError):
        Mps.model_validate({"directory": "/" + "a" * directory["maxLength"]})


def test_the_chart_knows_where_the_program_reads_cdi_specs_by_default() -> None:
    text = (CHART / "templates" / "device-plugin-daemonset.yaml").read_text(encoding="utf-8")
    defaults = re.findall(r'dig "cdiSpecDirs" \(list ((?:"\S+" ?)+)\)', text)
    read = DevicePluginConfiguration.model_fields["cdi_spec_dirs"].default

    assert [re.findall(r'"(\S+)"', each) for each in defaults] == [list(read)]
    # A node may have nothing else that can be written: by default no path outside of these is made.
    assert all(path.startswith(("/var/", "/run/")) for path in read)


def test_the_templates_know_the_names_of_the_resources() -> None:
    defined = (CHART / "templates" / "_names.tpl").read_text(encoding="utf-8")
    defaults = dict(re.findall(r'dig "resources" "(\w+)" "(\S+)"', defined))

    assert defaults == {"gpuMem": names.GPU_MEM, "gpuCount": names.GPU_COUNT, "gpuCore": names.GPU_CORE}
