"""SchedulerConfiguration: its defaults, its limits, and the profiles that come of it."""

import pytest
from pydantic import ValidationError

from config.protocol import names
from config.settings.plugins import choose
from config.settings.scheduler import ClientConnection, SchedulerConfiguration, configuration_model, resolve
from scheduler.plugins.card.gpu_share import GpuShareArgs
from scheduler.plugins.node.node_resources_fit import NodeResourcesFitArgs
from scheduler.plugins.registry import describe

MODEL = configuration_model(describe())


def configured(**fields: object) -> SchedulerConfiguration:
    return MODEL.model_validate(fields, by_alias=True, by_name=False)


def profiles(*entries: dict[str, object]) -> SchedulerConfiguration:
    return configured(profiles=list(entries))


def test_the_defaults_are_those_of_the_protocol_and_of_kube_scheduler() -> None:
    default = MODEL()

    assert (default.resources.gpu_mem, default.resources.gpu_count) == (names.GPU_MEM, names.GPU_COUNT)
    assert default.resources.gpu_core == names.GPU_CORE
    assert default.memory_unit_mib == 1024
    assert (default.pod_initial_backoff_seconds, default.pod_max_backoff_seconds) == (1, 10)
    assert default.bind_timeout_s == 4
    assert default.listen_address == ("", 10261)
    assert (default.log_level, default.log_format, default.per_card_metrics) == ("info", "auto", False)
    assert default.client_connection == ClientConnection(kubeconfig="", context="")


def test_the_default_profile_serves_both_names_by_binpack() -> None:
    (profile,) = resolve(MODEL())

    assert profile.scheduler_names == ("gpushare-scheduler", "gpushare")
    assert profile.args == {}
    assert GpuShareArgs() == GpuShareArgs(card_policy="binpack", node_policy="binpack")
    strategy = NodeResourcesFitArgs().scoring_strategy
    assert strategy.type == "LeastAllocated"
    assert [(resource.name, resource.weight) for resource in strategy.resources] == [("cpu", 1), ("memory", 1)]


def test_a_field_of_the_file_is_a_field_of_the_model() -> None:
    read = configured(
        memoryUnitMiB=1, bindTimeout="500ms", watchStallTimeout="2m", maxBindsInFlight=8, podInitialBackoffSeconds=0.5
    )

    assert read == MODEL(
        memory_unit_mib=1,
        bind_timeout_s=0.5,
        watch_stall_timeout_s=120,
        max_binds_in_flight=8,
        pod_initial_backoff_seconds=0.5,
    )


@pytest.mark.parametrize(
    ("entries", "served"),
    [
        pytest.param([{}], [("gpushare-scheduler", "gpushare")], id="the name left out"),
        pytest.param(
            [{"schedulerName": "gpushare-scheduler"}], [("gpushare-scheduler", "gpushare")], id="the same name given"
        ),
        pytest.param([{"schedulerName": "mine"}], [("mine",)], id="another name"),
        pytest.param([{"additionalSchedulerNames": []}], [("gpushare-scheduler",)], id="no more names wanted"),
        pytest.param(
            [{"schedulerName": "mine", "additionalSchedulerNames": ["a", "b"]}], [("mine", "a", "b")], id="more names"
        ),
        pytest.param(
            [{}, {"schedulerName": "gpushare"}], [("gpushare-scheduler",), ("gpushare",)], id="one profile for each"
        ),
    ],
)
def test_a_profile_serves_its_names(entries: list[dict[str, object]], served: list[tuple[str, ...]]) -> None:
    assert [profile.scheduler_names for profile in resolve(profiles(*entries))] == served


def test_arguments_reach_the_profile_that_they_are_given_to() -> None:
    fit = {"name": "NodeResourcesFit", "args": {"scoringStrategy": {"type": "MostAllocated"}}}
    share = {"name": "GpuShare", "args": {"cardPolicy": "spread"}}
    first, second = resolve(profiles({"pluginConfig": [fit, share]}, {"schedulerName": "b"}))

    assert first.args["GpuShare"] == GpuShareArgs(card_policy="spread", node_policy="binpack")
    assert first.args["NodeResourcesFit"].scoring_strategy.type == "MostAllocated"
    assert second.args == {}


def test_plugins_are_chosen_per_profile() -> None:
    plugins = {"score": {"disabled": [{"name": "NodeAffinity"}]}}
    first, second = resolve(profiles({"plugins": plugins}, {"schedulerName": "b"}))

    assert "NodeAffinity" not in choose(first.plugins, describe()).score
    assert "NodeAffinity" in choose(second.plugins, describe()).score


@pytest.mark.parametrize(
    ("listen", "address"),
    [
        ("127.0.0.1:0", ("127.0.0.1", 0)),
        ("[::1]:10261", ("::1", 10261)),
        (":10261", ("", 10261)),
        ("localhost:65535", ("localhost", 65535)),
    ],
)
def test_listen_is_a_host_and_a_port(listen: str, address: tuple[str, int]) -> None:
    assert configured(listen=listen).listen_address == address


def test_without_a_wait_at_the_start_a_bind_still_has_a_time_out() -> None:
    assert configured(bindTimeout=0).bind_request_timeout_s == 4
    assert configured(bindTimeout="2s").bind_request_timeout_s == 2


def test_a_configuration_cannot_be_changed() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        MODEL().memory_unit_mib = 1


RESOURCE = "the name of an extended resource"


@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        pytest.param({"apiVersion": "v1"}, "gpushare/v1alpha1", id="another version"),
        pytest.param({"kind": "KubeSchedulerConfiguration"}, "SchedulerConfiguration", id="another kind"),
        pytest.param({"parallelism": 16}, "parallelism", id="a field without effect"),
        pytest.param({"bind_timeout_s": 4}, "bind_timeout_s", id="a name of the program's"),
        pytest.param({"profiles": []}, "at least one profile", id="no profile"),
        pytest.param({"profiles": [{}, {}]}, "more than once: gpushare-scheduler", id="a name in two profiles"),
        pytest.param({"profiles": [{"schedulerName": ""}]}, "schedulerName", id="an empty name"),
        pytest.param({"profiles": [{"pluginConfig": [{"name": "NodeName"}]}]}, "'GpuShare'", id="args of none"),
        pytest.param(
            {"profiles": [{"pluginConfig": [{"name": "GpuShare"}, {"name": "GpuShare"}]}]}, "more than once", id="twice"
        ),
        pytest.param({"memoryUnitMiB": 0}, "memoryUnitMiB", id="a unit of nothing"),
        pytest.param({"resources": {"gpuMem": "gpu-mem"}}, RESOURCE, id="a resource without a domain"),
        pytest.param({"resources": {"gpuMem": "kubernetes.io/gpu"}}, RESOURCE, id="a resource of Kubernetes' own"),
        pytest.param({"resources": {"gpuMem": names.GPU_COUNT}}, "three different names", id="one name for two"),
        pytest.param({"podInitialBackoffSeconds": 20}, "which is 20, found 10", id="longer than the longest"),
        pytest.param({"podInitialBackoffSeconds": 0}, "podInitialBackoffSeconds", id="no back-off"),
        pytest.param({"bindTimeout": "4y"}, "expected a duration", id="no duration"),
        pytest.param({"bindTimeout": "2h"}, "bindTimeout", id="hours"),
        pytest.param({"watchStallTimeout": 0}, "watchStallTimeout", id="stalled at once"),
        pytest.param({"listen": "10261"}, "host:port", id="a port alone"),
        pytest.param({"listen": "0.0.0.0:65536"}, "host:port", id="no port has that number"),
        pytest.param({"listen": "::1:10261"}, "host:port", id="IPv6 without brackets"),
        pytest.param({"logLevel": "verbose"}, "'warning'", id="an unknown level"),
        pytest.param({"maxBindsInFlight": 0}, "maxBindsInFlight", id="no binds"),
    ],
)
def test_values_that_make_no_sense_are_refused(fields: dict[str, object], complaint: str) -> None:
    with pytest.raises(ValidationError, match=complaint):
        configured(**fields)


def test_a_resource_counts_once_in_a_score() -> None:
    strategy = {"resources": [{"name": "cpu"}, {"name": "cpu", "weight": 2}]}
    entry = {"name": "NodeResourcesFit", "args": {"scoringStrategy": strategy}}

    with pytest.raises(ValidationError, match="more than once: cpu"):
        profiles({"pluginConfig": [entry]})
