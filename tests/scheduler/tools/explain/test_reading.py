"""What `explain` and `what-if` read, and what they say of what they may not read."""

import asyncio
from typing import Any

import pytest

from config.protocol import names
from config.settings.scheduler import SchedulerConfiguration
from scheduler.kube.port import CLAIMS, KINDS, OF_STORAGE, PRIORITY_CLASSES
from scheduler.kube.scheduling import KINDS_AND_OPTIONAL
from scheduler.plugins.fragmentation.target_workload import TargetWorkload
from scheduler.tools.cli.asking import cluster_view
from scheduler.tools.cli.manifests import Unanswerable
from tests.support.builders import manifest, wire_node, wire_pod
from tests.support.explaining import Limited, asked, explained, explained_new, prose, there, waits, world
from tests.support.repository import ROOT
from tests.support.volumes import claim, with_claims

EVERYTHING_ELSE = tuple(kind.name for kind in KINDS if kind.name not in {"pods", "nodes"})


def test_every_kind_is_listed_once_and_nothing_is_written() -> None:
    of = world(a=[16])
    waits(of, "big", 40)
    before = (list(of.pods), len(of.events))
    cluster = Limited(of)
    found = asyncio.run(cluster_view(cluster, SchedulerConfiguration()))
    asyncio.run(asyncio.wait_for(found.explained("default", "big"), 10))
    assert sorted(cluster.asked) == sorted(kind.name for kind in KINDS_AND_OPTIONAL)
    assert (list(of.pods), len(of.events)) == before


def test_what_may_not_be_read_is_one_short_line() -> None:
    of = world(a=[16])
    waits(of, "big", 40)
    assert asked(of, "configmaps").unread == [
        "left out, because reading them is not allowed: configmaps; see docs/explain.md"
    ]
    (line,) = asked(of, *EVERYTHING_ELSE).unread
    assert line == (
        "left out, because reading them is not allowed: configmaps, csidrivers, csinodes and 11 more; "
        "see docs/explain.md"
    )
    assert explained(of, "big", refused=EVERYTHING_ELSE).state == "waits"
    with pytest.raises(Unanswerable, match="the right to list and watch them"):
        asked(of, "pods")


def test_a_pod_of_long_ago_counts_less_in_what_is_usual() -> None:
    of = world(a=[16, 16])
    for name, units, created in (("new", 3, "2026-01-15T00:00:00Z"), ("old", 8, "2026-01-01T00:00:00Z")):
        made: dict[str, Any] = manifest(name, units)
        made["metadata"]["creationTimestamp"] = created
        of.pods.create(made)
    usual = asked(of).reading.engine.tables.fact(TargetWorkload).usual()
    shares = dict(zip([shape.units for shape in usual.shapes], usual.weights[:, 0], strict=True))
    assert shares[3] / shares[8] == pytest.approx(4.0)


@pytest.mark.parametrize("refused", [(kind.name,) for kind in OF_STORAGE] + [EVERYTHING_ELSE], ids=lambda one: one[0])
def test_a_claim_that_could_not_be_read_is_not_said_to_be_missing(refused: tuple[str, ...]) -> None:
    of = world(a=[16])
    assert 'persistentvolumeclaim "checkpoints" not found' in prose(
        explained_new(of, "train", 3, **with_claims("checkpoints"))
    )
    of.storage.create(CLAIMS, claim("checkpoints"))
    answer = explained(of, "train", refused=refused)
    assert (answer.state, answer.message) == ("fits", "")
    assert "not found" not in prose(answer)
    served = asked(of, *refused).what_if(wire_pod("train", 3, **with_claims("checkpoints")), 1)
    assert (served.fit, "Its volumes are ignored" in prose(served)) == (1, True)


def test_preemption_is_told_without_the_budgets_with_what_they_may_change() -> None:
    of = world(a=[16])
    there(of, "low", 16, "a", 0)
    known, unknown = (
        explained_new(of, "urgent", 16, priority=9),
        explained(of, "urgent", refused=("poddisruptionbudgets",)),
    )
    assert unknown.preemption == known.preemption
    assert unknown.preemption is not None
    may_spare = "The PodDisruptionBudgets cannot be read: preemption may spare pods that one of them protects."
    assert set(unknown.words) - set(known.words) == {may_spare}


def test_a_namespace_selector_without_the_namespaces_is_told() -> None:
    of = world(a=[16])
    term = {"topologyKey": "kubernetes.io/hostname", "namespaceSelector": {"matchLabels": {"team": "x"}}}
    affinity = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    waits(of, "p", 3, affinity=affinity)
    told = "The namespaceSelector of its pod affinity matches no namespace, because namespaces cannot be read."
    assert told in explained(of, "p", refused=("namespaces",)).words
    assert told not in explained(of, "p").words


@pytest.mark.parametrize("kind", [*KINDS, PRIORITY_CLASSES], ids=lambda kind: kind.name)
def test_the_guide_lists_every_right(kind: object) -> None:
    rights = (ROOT / "docs/explain.md").read_text(encoding="utf-8").partition("## Rights")[2].partition("##")[0]
    assert f"`{kind.name}`" in rights  # type: ignore[attr-defined]


def test_the_mistakes_of_other_pods_are_theirs() -> None:
    of = world(wire_node("b", annotations={"gpushare/cordn": "0"}), a=[16])
    waits(of, "v3", 3, annotations={"gpushare/exlusive": "true"})
    of.pods.create(wire_pod("v4", 3))
    of.pods.bind("default", "v4", "a", {names.MEM_IDX: "7"})
    waits(of, "p", 3)
    (line,) = asked(of).unread
    assert line.startswith("Node b: annotation gpushare/cordn is unknown")
    assert "exlusive" in explained(of, "v3").words[0]
