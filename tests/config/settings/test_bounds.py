"""What a number, a duration or a name may be: said with path, value and range, in both programs' configurations."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from config.settings.deviceplugin import DevicePluginConfiguration
from config.settings.load import load
from config.settings.mistakes import ConfigurationError
from config.settings.scheduler import SchedulerConfiguration, configuration_model
from config.settings.schema import bounds, is_model, name_in_file, options
from scheduler.plugins.registry import describe

SCHEDULER = configuration_model(describe())
PREFIX = "X_"
ENV: dict[type[BaseModel], dict[str, str]] = {DevicePluginConfiguration: {"X_NODENAME": "n"}, SCHEDULER: {}}
NAME = (
    "expected a name that Events can carry, such as gpushare-scheduler or example.com/gpus: 1 to 63 letters, digits, "
    "-, _ and ., beginning and ending with a letter or digit, found "
)


def mistakes(model: type[BaseModel], name: str, value: object) -> list[str]:
    """What is said of one field, `path: message`. value: as the environment has it."""
    text = value if isinstance(value, str) else json.dumps(value)
    try:
        load(model, file=None, environ=ENV[model] | {f"{PREFIX}{name.upper()}": text}, flags={}, env_prefix=PREFIX)
    except ConfigurationError as error:
        return [f"{mistake.path}: {mistake.message}" for mistake in error.mistakes]
    return []


@pytest.mark.parametrize(
    ("model", "name", "value", "message"),
    [
        (SCHEDULER, "podInitialBackoffSeconds", "1e-9", "expected at least 0.1, at most 3600, found '1e-9'"),
        (SCHEDULER, "bindTimeout", "1ns", "expected 0, or 500ms to 1m, found 1e-09 s"),
        (SCHEDULER, "bindTimeout", "1h", "expected 0, or 500ms to 1m, found 3600 s"),
        (SCHEDULER, "watchStallTimeout", "1ms", "expected at least 1m30s, at most 10m, found '1ms'"),
        (SCHEDULER, "maxBindsInFlight", "0", "expected at least 1, at most 1024, found '0'"),
        (DevicePluginConfiguration, "allocateWait", "1m", "expected at least 0s, at most 5s, found '1m'"),
    ],
)
def test_a_value_out_of_range_is_said_with_its_range(
    model: type[BaseModel], name: str, value: str, message: str
) -> None:
    assert mistakes(model, name, value) == [f"{name}: {message}"]


@pytest.mark.parametrize(
    ("model", "name", "value"),
    [
        (SCHEDULER, "bindTimeout", "0"),
        (SCHEDULER, "bindTimeout", "500ms"),
        (SCHEDULER, "podInitialBackoffSeconds", "0.1"),
        (SCHEDULER, "watchStallTimeout", "90s"),
        (DevicePluginConfiguration, "allocateWait", "0"),
    ],
)
def test_the_ends_of_a_range_belong_to_it(model: type[BaseModel], name: str, value: str) -> None:
    assert mistakes(model, name, value) == []


@pytest.mark.parametrize(
    ("name", "message"),
    [
        pytest.param("my scheduler", f"{NAME}'my scheduler'", id="blanks"),
        pytest.param("", f"{NAME}''", id="nothing"),
        pytest.param("s" * 64, f"{NAME}'{'s' * 64}'", id="64 characters"),
        pytest.param("s" * 200, f"{NAME}'{'s' * 80}'", id="200 characters"),
        pytest.param("-gpus", f"{NAME}'-gpus'", id="a dash first"),
        pytest.param("Example.com/gpus", f"{NAME}'Example.com/gpus'", id="a domain in capitals"),
        pytest.param(
            "default-scheduler",
            "expected a name other than default-scheduler, because kube-scheduler would bind the same pods",
            id="kube-scheduler's",
        ),
    ],
)
def test_a_name_that_no_event_can_carry_is_refused_wherever_it_is(name: str, message: str) -> None:
    profile = {"schedulerName": name, "additionalSchedulerNames": [name]}

    assert mistakes(SCHEDULER, "profiles", [profile])[:2] == [
        f"profiles[0].schedulerName: {message}",
        f"profiles[0].additionalSchedulerNames[0]: {message}",
    ]


@pytest.mark.parametrize("name", ["gpushare", "GPU_share.2", "s" * 63, "example.com/gpus"])
def test_a_qualified_name_is_a_name(name: str) -> None:
    assert mistakes(SCHEDULER, "profiles", [{"schedulerName": name}]) == []


def scored_by(name: str) -> list[dict[str, Any]]:
    """Profiles with a score by this resource and the CPUs."""
    args = {"scoringStrategy": {"resources": [{"name": "cpu"}, {"name": name}]}}
    return [{"pluginConfig": [{"name": "GpuShare"}, {"name": "NodeResourcesFit", "args": args}]}]


PLACE = "profiles[0].pluginConfig[1].args.scoringStrategy.resources[1].name"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        pytest.param(
            "aliyun.com/gpu-mem",
            "expected a resource that NodeResourcesFit handles, found aliyun.com/gpu-mem: GpuShare scores it",
            id="gpu-mem",
        ),
        pytest.param(
            "cpus",
            "expected cpu, memory, ephemeral-storage, hugepages-<size> or domain/name, found 'cpus'",
            id="no resource",
        ),
        pytest.param(
            "pods",
            "expected cpu, memory, ephemeral-storage, hugepages-<size> or domain/name, found 'pods'",
            id="what no pod requests",
        ),
    ],
)
def test_a_score_by_a_resource_that_the_rule_never_sees_is_refused(name: str, message: str) -> None:
    assert mistakes(SCHEDULER, "profiles", scored_by(name)) == [f"{PLACE}: {message}"]


@pytest.mark.parametrize("name", ["memory", "ephemeral-storage", "hugepages-2Mi", "nvidia.com/gpu"])
def test_a_score_by_another_resource_is_not(name: str) -> None:
    assert mistakes(SCHEDULER, "profiles", scored_by(name)) == []


def numbers_of(model: type[BaseModel]) -> Iterator[tuple[str, FieldInfo]]:
    """Every number and duration of a configuration, by path."""
    for name, field in model.model_fields.items():
        path = name_in_file(name, field)
        for option in options(field.annotation):
            if is_model(option):
                yield from ((f"{path}.{inner}", found) for inner, found in numbers_of(option))
            elif option in {int, float}:
                yield path, field


@pytest.mark.parametrize("model", [SchedulerConfiguration, DevicePluginConfiguration])
def test_every_number_of_a_configuration_has_a_least_and_a_most(model: type[BaseModel]) -> None:
    open_ended = {
        path for path, field in numbers_of(model) if "at most" not in bounds(field) or "at least" not in bounds(field)
    }

    # Its range has a gap, which only a validator can say.
    assert open_ended <= {"bindTimeout"}


@pytest.mark.parametrize("args", [plugin.args for plugin in describe() if plugin.args is not None])
def test_every_number_among_the_arguments_of_a_plugin_has_a_least_and_a_most(args: type[BaseModel]) -> None:
    assert all("at least" in bounds(field) and "at most" in bounds(field) for _, field in numbers_of(args))
