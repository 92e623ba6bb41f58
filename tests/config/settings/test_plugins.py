"""Which plugins a profile runs: KubeSchedulerConfiguration's merging, over our defaults."""

import pytest
from pydantic import ValidationError

from config.settings.plugins import ChosenPlugins, choose, plugins_model
from scheduler.plugins.registry import describe

DESCRIBED = describe()
Plugins = plugins_model(DESCRIBED)
FILTERS = (
    "UnsupportedRules",
    "NodeUnschedulable",
    "NodeName",
    "KubeletRejections",
    "TaintToleration",
    "NodeAffinity",
    "NodePorts",
    "NodeResourcesFit",
    "VolumeRestrictions",
    "NodeVolumeLimits",
    "VolumeBinding",
    "VolumeZone",
    "GpuShare",
    "PodTopologySpread",
    "InterPodAffinity",
    "NodeDeclaredFeatures",
)


def chosen(**points: object) -> ChosenPlugins:
    return choose(Plugins.model_validate(points), DESCRIBED)


def on(*names: str) -> list[dict[str, str]]:
    return [{"name": name} for name in names]


def test_a_profile_that_says_nothing_runs_the_default_plugins() -> None:
    default = chosen()

    assert default.pre_enqueue == ("SchedulingGates",)
    assert default.queue_sort == ("PrioritySort",)
    assert default.filter == FILTERS
    small = {"NodeResourcesFit": 1, "NodeResourcesBalancedAllocation": 1, "ImageLocality": 1}
    of_domains = {"PodTopologySpread": 2, "InterPodAffinity": 2}
    assert default.weights == {"GpuShare": 10, "TaintToleration": 3, "NodeAffinity": 2, **of_domains, **small}
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
        pytest.param({"filter": {"disabled": on("GpuShare")}}, "without: filter GpuShare", id="GpuShare off"),
        pytest.param(
            {"multiPoint": {"disabled": on("GpuShare")}}, "without: filter GpuShare", id="GpuShare off all over"
        ),
        pytest.param(
            {"filter": {"disabled": on("*")}}, "without: filter UnsupportedRules, filter GpuShare", id="no filter"
        ),
        pytest.param({"queueSort": {"disabled": on("*")}}, "without: queueSort PrioritySort", id="no queue sort"),
        pytest.param({"bind": {"disabled": on("DefaultBinder")}}, "without: bind DefaultBinder", id="no binder"),
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
