"""Plugins of other packages: which are accepted, which are rejected, and their effect."""

import subprocess
import sys
from importlib.metadata import EntryPoint

import pytest

from config.settings.scheduler import configuration_model
from scheduler.core.build import ENTRY_POINTS, BrokenPlugin, build_engine, plugin_of
from scheduler.core.engine import Engine
from scheduler.framework.answers import PluginError
from scheduler.framework.plugin import Plugin
from scheduler.plugins.registry import PLUGINS, describe
from tests.support import plugins_of_others as others
from tests.support.builders import pod, wire_node
from tests.support.placing import place, settle, why

PLUGINS_OF_OTHERS = "tests.support.plugins_of_others"


def entry(value: str) -> EntryPoint:
    return EntryPoint("Rule", value, ENTRY_POINTS)


def with_plugin(plugin: type[Plugin], *cards: int) -> Engine:
    """An engine whose profile enables the plugin, and a node `a` with these cards."""
    plugins = (*PLUGINS, plugin)
    enabled = {"multiPoint": {"enabled": [{"name": plugin.name}]}}
    said = configuration_model(describe(plugins)).model_validate({"profiles": [{"plugins": enabled}]})
    built, _ = build_engine(said, plugins)
    built.node_changed(wire_node("a", list(cards)))
    return built


def test_a_class_that_is_a_plugin_is_taken() -> None:
    assert plugin_of(entry(f"{PLUGINS_OF_OTHERS}:Sound")) is others.Sound


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        pytest.param("no.such.module:Rule", "cannot be imported: ModuleNotFoundError", id="no module"),
        pytest.param(f"{PLUGINS_OF_OTHERS}:NoSuch", "cannot be imported: AttributeError", id="no class"),
        pytest.param("tests.support.builders:pod", "expected a class that inherits", id="a function"),
        pytest.param(f"{PLUGINS_OF_OTHERS}:Abstract", "the plugin lacks filter", id="abstract"),
        pytest.param(f"{PLUGINS_OF_OTHERS}:Starred", "its name is '*'", id="a star as its name"),
        pytest.param(f"{PLUGINS_OF_OTHERS}:Nameless", "its name is ''", id="no name"),
        pytest.param(f"{PLUGINS_OF_OTHERS}:Needy", "with a default for every field", id="arguments without default"),
        pytest.param(f"{PLUGINS_OF_OTHERS}:Heavy", "its default_weight is 500; expected 1 to 100", id="too heavy"),
    ],
)
def test_what_is_no_plugin_is_refused_with_the_reason(value: str, problem: str) -> None:
    with pytest.raises(BrokenPlugin) as caught:
        plugin_of(entry(value))
    assert f"entry point Rule = {value}: " in str(caught.value)
    assert problem in str(caught.value)


def test_a_plugin_of_others_is_off_until_a_profile_enables_it() -> None:
    (described,) = (each for each in describe((*PLUGINS, others.Sound)) if each.name == "Sound")
    assert not described.on_by_default


def test_a_rule_about_cards_may_not_look_at_other_nodes() -> None:
    with pytest.raises(PluginError, match="plugin FarCards: a rule about cards depends on DOMAINS"):
        with_plugin(others.FarCards, 16)


@pytest.mark.parametrize("plugin", [others.FloatScores, others.WideMask])
def test_an_answer_of_the_wrong_form_is_named(plugin: type[Plugin]) -> None:
    with pytest.raises(PluginError, match=f"plugin {plugin.name}: "):
        place(with_plugin(plugin, 16), "p", 3)


def test_a_pod_that_permit_rejected_is_decided_again_when_what_permit_reads_changes() -> None:
    built = with_plugin(others.Permission, 16)
    assert why(place(built, "p", 3)) == "0/1 nodes are available: not yet."
    built.pod_waiting(pod("p", 3, annotations={"go": "now"}), 1.0)
    assert settle(built) == ["p"]


@pytest.mark.parametrize(
    ("points", "rejected"),
    [
        pytest.param({}, True, id="on"),
        pytest.param({"filter": {"disabled": [{"name": "NodeAffinity"}]}}, False, id="filter off"),
        pytest.param({"score": {"disabled": [{"name": "NodeAffinity"}]}}, True, id="score off"),
    ],
)
def test_a_rule_that_is_off_at_filter_rejects_nothing_before_it_either(
    points: dict[str, object],
    rejected: bool,  # noqa: FBT001 - a case of the table
) -> None:
    said = configuration_model(describe()).model_validate({"profiles": [{"plugins": points}]})
    built, _ = build_engine(said)
    built.node_changed(wire_node("a", [16]))
    fields = [{"key": "metadata.name", "operator": "In", "values": [name]} for name in ("a", "b")]
    terms = {"nodeSelectorTerms": [{"matchFields": fields}]}
    wanted = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    outcome = place(built, "p", 3, affinity=wanted)
    assert ("pod affinity terms conflict" in str(outcome)) == rejected


PREEMPTS = """
import sys
from config.settings.scheduler import SchedulerConfiguration
from scheduler.core.build import build_engine
from tests.support.builders import pod, wire_node
from tests.support.preempting import chosen
from tests.support.placing import place
engine, _ = build_engine(SchedulerConfiguration())
engine.node_changed(wire_node("a", [8]))
place(engine, "low", 8)
before = set(sys.modules)
print(chosen(engine, pod("p", 8, priority=10, requests={"cpu": "1000"})).victims)
print(chosen(engine, pod("q", 8, priority=10)).victims)
print(chosen(engine, pod("r", 9, priority=10)).victims)
print(*sorted(set(sys.modules) - before))
"""


def test_nothing_is_imported_once_pods_are_decided() -> None:
    """An import would block the loop: `numpy.ma`, which some functions of NumPy load at first call, takes 40 ms."""
    done = subprocess.run([sys.executable, "-c", PREEMPTS], capture_output=True, text=True, check=True)

    assert done.stdout.splitlines() == ["()", "('default/low',)", "()", ""]
