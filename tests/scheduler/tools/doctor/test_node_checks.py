"""Findings of `kubectl gpushare doctor` on nodes: their inventory, the device plugin, cards."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import msgspec
import pytest

from config.protocol import inventory, names
from config.protocol.inventory import Card, Health
from scheduler.kube import objects
from scheduler.tools.doctor.cluster_checks import diagnosed
from scheduler.tools.doctor.facts import PLUGIN_LABEL, SCHEDULER_LABEL
from scheduler.tools.explain.findings import ClusterFinding, Severity, lines
from scheduler.tools.explain.tones import as_text
from tests.scheduler.tools.doctor.checked import LABELS, NODE, NODE_B, facts, found, one, program
from tests.support.builders import card, wire_node

MIG = replace(card(0, 0), reason="mig")


def one_of(told: Sequence[ClusterFinding], words: str) -> ClusterFinding:
    (single,) = (each for each in told if words in each.message)
    return single


def finished(pod: objects.PodObject) -> objects.PodObject:
    return msgspec.structs.replace(pod, status=msgspec.structs.replace(pod.status, phase="Failed"))


def test_nodes_that_announce_their_cards_are_counted() -> None:
    assert one("inventory", facts(), Severity.OK).message == "1 node announces its cards"
    assert one("inventory", facts(NODE, NODE_B), Severity.OK).message == "2 nodes announce their cards"


OF_THE_PLUGIN = "kubectl -n kube-system get pods -l app.kubernetes.io/name=gpushare-scheduler-device-plugin"
AWAY = wire_node("b", [16], labels=LABELS, gpu_mem=0)
FAILED_CARD = replace(card(0, 16, health=Health.UNHEALTHY), reason="xid-79")


@pytest.mark.parametrize(
    ("check", "nodes", "severity", "then"),
    [
        pytest.param("inventory", [wire_node("b", labels=LABELS)], Severity.FAILED, "logs POD", id="without inventory"),
        pytest.param(
            "inventory",
            [wire_node("b", labels=LABELS, annotations={names.INVENTORY: "{"})],
            Severity.FAILED,
            "logs POD",
            id="unreadable",
        ),
        pytest.param("plugin", [AWAY], Severity.FAILED, "logs POD", id="away"),
        pytest.param(
            "cards", [wire_node("b", [FAILED_CARD, 16], labels=LABELS)], Severity.WARNING, "plugin doctor", id="failed"
        ),
    ],
)
def test_a_remedy_names_the_pod_of_the_node_that_it_is_about(
    check: str, nodes: Sequence[objects.Node], severity: Severity, then: str
) -> None:
    told = one(check, facts(*nodes), severity)
    assert told.about[0].startswith("node/b")
    assert f"{OF_THE_PLUGIN} --field-selector spec.nodeName=b;" in told.remedy
    assert then in told.remedy
    assert "ds/" not in told.remedy


def test_of_several_nodes_the_remedy_says_that_each_has_its_own_pod() -> None:
    other = wire_node("c", [16], labels=LABELS, gpu_mem=0)
    remedy = one("plugin", facts(AWAY, other)).remedy
    assert "--field-selector spec.nodeName=b (likewise on each node);" in remedy


def test_a_labelled_node_without_inventory_is_found_and_the_reverse() -> None:
    of = facts(NODE, wire_node("new", labels=LABELS), wire_node("stray", [16]))
    without, stray = one("inventory", of), one("inventory", of, Severity.WARNING)
    assert (without.about, "1 node with the label" in without.message) == (("node/new",), True)
    assert (stray.about, "kubectl label node" in stray.remedy) == (("node/stray",), True)


PLUGIN = program("p", "image:1", PLUGIN_LABEL)
CHOSEN_OTHERWISE = wire_node("a", [16])


def test_the_device_plugin_may_choose_its_nodes_by_another_label() -> None:
    of = facts(CHOSEN_OTHERWISE, wire_node("cpu"), pods=[PLUGIN])
    assert diagnosed(of).clean
    assert found("inventory", of, Severity.WARNING) == []
    assert one("inventory", of, Severity.OK).message == "1 node announces its cards"


@pytest.mark.parametrize(
    ("pods", "unread", "strays"),
    [
        pytest.param([], {}, ("node/a",), id="no pod"),
        pytest.param([program("p", "image:1", PLUGIN_LABEL, node="b")], {}, ("node/a",), id="on another node"),
        pytest.param([program("s", "image:1", SCHEDULER_LABEL)], {}, ("node/a",), id="the scheduler's"),
        pytest.param([finished(PLUGIN)], {}, ("node/a",), id="one that has ended"),
        pytest.param([PLUGIN], {}, (), id="one of the plugin"),
        pytest.param([], {"pods": "pods is forbidden"}, (), id="nobody knows"),
    ],
)
def test_a_node_is_left_behind_where_no_pod_of_the_plugin_is(
    pods: Sequence[objects.PodObject], unread: Mapping[str, str], strays: tuple[str, ...]
) -> None:
    of = facts(NODE_B, CHOSEN_OTHERWISE, pods=pods, unread=unread)
    assert tuple(name for warned in found("inventory", of, Severity.WARNING) for name in warned.about) == strays
    assert one("inventory", of, Severity.OK).message == "2 nodes announce their cards"


def test_no_remedy_removes_an_inventory_that_pods_are_counted_by() -> None:
    stray = one("inventory", facts(CHOSEN_OTHERWISE), Severity.WARNING)
    assert (
        stray.message == "1 node with gpushare/inventory, without the label gpushare=true and without a device plugin"
    )
    assert f"{names.INVENTORY}-" not in stray.remedy
    assert "docs/runbooks/GpusharePluginAway.md" in stray.remedy


def test_a_cluster_without_gpu_nodes_says_which_label_is_missing() -> None:
    assert one("inventory", facts(wire_node("cpu"))).remedy == "kubectl label node NODE gpushare=true"


def test_a_plugin_that_is_away_is_found_with_the_time_since_when() -> None:
    away = [wire_node(name, [16], labels=LABELS, gpu_mem=0) for name in ("b", "c")]
    of = facts(NODE, *away, away_since={"c": "2026-11-23T01:02:03Z"})
    missing = one("plugin", of)
    assert missing.message == "the device plugin is away on 2 nodes: nothing is allocatable there"
    assert missing.about == ("node/b", "node/c since 2026-11-23T01:02:03Z")
    assert "node/c since 2026-11-23T01:02:03Z\n" in as_text(lines(diagnosed(of)), colour=False)


def test_a_node_that_cannot_bring_cards_into_containers_is_found() -> None:
    written = inventory.encode(inventory.Inventory(1024, "", (card(0, 16),), inventory.NO_INJECTION))
    missing = one("plugin", facts(NODE, wire_node("b", [16], labels=LABELS, annotations={names.INVENTORY: written})))
    assert missing.message == "cards cannot be brought into containers on 1 node: no GPU pod is placed there"
    assert (missing.about, "GPUNotReady" in missing.remedy) == (("node/b",), True)


def test_cards_that_are_out_of_use_are_no_sign_of_a_plugin_that_is_away() -> None:
    failed = replace(card(0, 16, health=Health.UNHEALTHY), reason="xid-79")
    of = facts(wire_node("a", [failed], labels=LABELS, gpu_mem=0))
    assert found("plugin", of) == []
    assert one("cards", of, Severity.WARNING).about == ("node/a card 0 (GPU-a-0): unhealthy xid-79",)


def test_a_card_in_mig_mode_is_as_its_operator_wants_it() -> None:
    assert found("cards", facts(wire_node("a", [MIG, 16], labels=LABELS)), Severity.WARNING) == []


XID_79 = replace(card(1, 16, health=Health.UNHEALTHY), reason="xid-79")


@pytest.mark.parametrize(
    ("announced", "why"),
    [
        pytest.param([MIG], " (mig)", id="split"),
        pytest.param([replace(MIG, health=Health.SUSPECT)], " (mig)", id="split and suspect"),
        pytest.param([MIG, replace(MIG, index=1, uuid="GPU-a-1")], " (mig)", id="all split"),
        pytest.param([MIG, XID_79], " (mig)", id="the other is unhealthy"),
        pytest.param([card(0, 0), XID_79], "", id="used by processes outside the books"),
    ],
)
def test_cards_without_units_are_no_sign_of_a_plugin_that_is_away(announced: Sequence[Card], why: str) -> None:
    of = facts(wire_node("a", announced, labels=LABELS, gpu_mem=0), NODE_B)
    assert found("plugin", of) == []
    told = one_of(found("cards", of, Severity.WARNING), "no units")
    assert told.message == f"cards of 1 node have no units to share{why}"
    assert told.about == ("node/a",)
    assert diagnosed(of).clean


def test_a_card_with_units_beside_one_in_mig_mode_says_that_the_plugin_is_away() -> None:
    of = facts(wire_node("a", [MIG, card(1, 16)], labels=LABELS, gpu_mem=0))
    assert one("plugin", of).about == ("node/a",)
    assert found("cards", of, Severity.WARNING) == []


@pytest.mark.parametrize(
    ("node", "words"),
    [
        (wire_node("a", labels=LABELS, annotations={names.INVENTORY: "{"}), "inventory cannot be read"),
        (wire_node("a", [16], labels=LABELS, unit_mib=1), "units of 1 MiB"),
    ],
)
def test_an_inventory_that_cannot_be_used_is_found(node: objects.Node, words: str) -> None:
    assert words in one("inventory", facts(node)).message
