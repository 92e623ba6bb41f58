"""SchedulerConfiguration: its defaults, its limits, and the profiles and plugins that come of it."""

import pytest
from pydantic import ValidationError

from config.protocol import names
from config.settings.plugins import ChosenPlugins, choose, plugins_model
from config.settings.scheduler import SchedulerConfiguration, configuration_model, resolve
from scheduler.plugins.card.gpu_share import GpuShareArgs
from scheduler.plugins.node.node_resources_fit import NodeResourcesFitArgs
from scheduler.plugins.registry import describe

DESCRIBED = describe()
MODEL = configuration_model(DESCRIBED)


def configured(**fields: object) -> SchedulerConfiguration:
    return MODEL.model_validate(fields, by_alias=True, by_name=False)


def profiles(*entries: dict[str, object]) -> SchedulerConfiguration:
    return configured(profiles=list(entries))


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

    assert "NodeAffinity" not in choose(first.plugins, DESCRIBED).score
    assert "NodeAffinity" in choose(second.plugins, DESCRIBED).score


def test_without_a_wait_at_the_start_a_bind_still_has_a_time_out() -> None:
    assert configured(bindTimeout=0).bind_request_timeout_s == 4
    assert configured(bindTimeout="2s").bind_request_timeout_s == 2


RESOURCE = "the name of an extended resource"


@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        pytest.param({"bind_timeout_s": 4}, "bind_timeout_s", id="a name of the program's"),
        pytest.param({"profiles": []}, "at least one profile", id="no profile"),
        pytest.param({"profiles": [{}, {}]}, "more than once: gpushare-scheduler", id="a name in two profiles"),
        pytest.param({"profiles": [{"pluginConfig": [{"name": "NodeName"}]}]}, "'GpuShare'", id="args of none"),
        pytest.param(
            {"profiles": [{"pluginConfig": [{"name": "GpuShare"}, {"name": "GpuShare"}]}]}, "more than once", id="twice"
        ),
        pytest.param({"resources": {"gpuMem": "kubernetes.io/gpu"}}, RESOURCE, id="a resource of Kubernetes' own"),
        pytest.param({"resources": {"gpuMem": names.GPU_COUNT}}, "three different names", id="one name for two"),
        pytest.param({"listen": "::1:10261"}, "host:port", id="IPv6 without brackets"),
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


Plugins = plugins_model(DESCRIBED)
# scheduler/plugins/README.md lists them in their order, with their weights.
DEFAULT = [plugin for plugin in DESCRIBED if plugin.on_by_default]
FILTERS = tuple(plugin.name for plugin in DEFAULT if "filter" in plugin.points)


def chosen(**points: object) -> ChosenPlugins:
    return choose(Plugins.model_validate(points), DESCRIBED)


def on(*names: str) -> list[dict[str, str]]:
    return [{"name": name} for name in names]


def test_a_profile_that_says_nothing_runs_the_default_plugins() -> None:
    default = chosen()

    assert default.pre_enqueue == ("SchedulingGates",)
    assert default.queue_sort == ("PrioritySort",)
    assert default.filter == FILTERS
    assert default.weights == {plugin.name: plugin.weight for plugin in DEFAULT if plugin.weight}
    assert set(default.score) == set(default.weights)
    assert default.bind == ("DefaultBinder",)


def test_a_plugin_disabled_at_one_point_stays_on_at_the_others() -> None:
    changed = chosen(score={"disabled": on("TaintToleration")})

    assert "TaintToleration" not in changed.score
    assert "TaintToleration" not in changed.weights
    assert "TaintToleration" in changed.filter


def test_a_plugin_disabled_at_multi_point_is_off_everywhere() -> None:
    changed = chosen(multiPoint={"disabled": on("NodeAffinity")})

    assert "NodeAffinity" not in changed.filter
    assert "NodeAffinity" not in changed.score


def test_a_star_leaves_what_is_enabled_in_its_order() -> None:
    changed = chosen(filter={"disabled": on("*"), "enabled": on("GpuShare", "NodeName", "UnsupportedRules")})

    assert changed.filter == ("GpuShare", "NodeName", "UnsupportedRules")


def test_a_star_at_multi_point_leaves_what_is_enabled_there_and_at_the_points() -> None:
    kept = on("UnsupportedRules", "PrioritySort", "GpuShare", "DefaultBinder")
    changed = chosen(multiPoint={"disabled": on("*"), "enabled": kept}, filter={"enabled": on("NodeName")})

    assert changed.filter == ("UnsupportedRules", "GpuShare", "NodeName")
    assert changed.score == ("GpuShare",)
    assert changed.pre_enqueue == ()


def test_what_a_point_repeats_comes_before_the_rest() -> None:
    changed = chosen(filter={"enabled": on("NodePorts", "GpuShare")})

    assert changed.filter[:3] == ("NodePorts", "GpuShare", "UnsupportedRules")
    assert sorted(changed.filter) == sorted(FILTERS)


@pytest.mark.parametrize(
    ("points", "weight"),
    [
        pytest.param({"score": {"enabled": [{"name": "GpuShare", "weight": 4}]}}, 4, id="at the point"),
        pytest.param({"multiPoint": {"enabled": [{"name": "GpuShare", "weight": 5}]}}, 5, id="at multiPoint"),
        pytest.param({"score": {"enabled": on("GpuShare")}}, 10, id="not given"),
        pytest.param(
            {
                "multiPoint": {"enabled": [{"name": "GpuShare", "weight": 5}]},
                "score": {"enabled": [{"name": "GpuShare", "weight": 6}]},
            },
            6,
            id="at both: the point wins",
        ),
        pytest.param(
            {"score": {"disabled": on("*"), "enabled": [{"name": "GpuShare", "weight": 7}]}}, 7, id="after a star"
        ),
    ],
)
def test_a_weight_may_be_set(points: dict[str, object], weight: int) -> None:
    assert chosen(**points).weights["GpuShare"] == weight


@pytest.mark.parametrize(
    ("points", "complaint"),
    [
        pytest.param({"filter": {"disabled": on("GpuShare")}}, "profile needs: filter GpuShare", id="GpuShare off"),
        pytest.param(
            {"multiPoint": {"disabled": on("GpuShare")}}, "profile needs: filter GpuShare", id="GpuShare off all over"
        ),
        pytest.param(
            {"filter": {"disabled": on("*")}}, "profile needs: filter UnsupportedRules, filter GpuShare", id="no filter"
        ),
        pytest.param({"queueSort": {"disabled": on("*")}}, "profile needs: queueSort PrioritySort", id="no queue sort"),
        pytest.param({"bind": {"disabled": on("DefaultBinder")}}, "profile needs: bind DefaultBinder", id="no binder"),
        pytest.param({"score": {"enabled": on("GpuShare", "GpuShare")}}, "more than once: GpuShare", id="twice"),
        pytest.param({"score": {"enabled": on("NodePorts")}}, "should be 'TaintToleration'", id="a filter as a score"),
        pytest.param({"filter": {"enabled": on("*")}}, "should be 'UnsupportedRules'", id="a star as enabled"),
        pytest.param({"filter": {"enabled": [{"name": "NodeName", "weight": 2}]}}, "weight", id="a filter's weight"),
        pytest.param({"score": {"enabled": [{"name": "GpuShare", "weight": 0}]}}, "weight", id="weight 0"),
        pytest.param({"score": {"enabled": [{"name": "GpuShare", "weight": 101}]}}, "weight", id="weight 101"),
        pytest.param({"postBind": {}}, "postBind", id="a point without plugins"),
    ],
)
def test_plugins_that_make_no_sense_are_refused(points: dict[str, object], complaint: str) -> None:
    with pytest.raises(ValidationError, match=complaint):
        Plugins.model_validate(points)
