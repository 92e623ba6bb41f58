"""Storage objects from watches reach the tables; an invalid one affects that object only, and is reported."""

from dataclasses import dataclass, field
from typing import Any

import pytest

from scheduler.intake.volume_handlers import VolumeHandlers
from scheduler.kube.defaults import decoded
from scheduler.kube.port import CAPACITIES, CLAIMS, VOLUMES, Changed, Undecodable
from scheduler.state.tables import Tables
from tests.support.builders import pod
from tests.support.judging import tables_of
from tests.support.reported import Reported
from tests.support.volumes import bound, claim, show, volume, with_claims


@dataclass
class Handled:
    """Handlers of empty tables, with the problems that they report."""

    tables: Tables = field(default_factory=tables_of)
    reports: Reported = field(default_factory=Reported)

    @property
    def handlers(self) -> VolumeHandlers:
        return VolumeHandlers(self.tables, self.reports)


def test_a_claim_that_cannot_be_read_is_as_if_it_were_not_there() -> None:
    handled = Handled()
    show(handled.tables, CLAIMS, claim("data"))
    handled.handlers.handle(CLAIMS, [Undecodable("default/data", "expected `object`, got `str`")])

    assert handled.tables.volumes.claim(("default", "data")) is None
    assert [(one.kind, one.name) for one in handled.reports.problems] == [("PersistentVolumeClaim", "default/data")]
    assert handled.reports.seen == [("default", "data")]


@pytest.mark.parametrize("size", ["1 GiB", "much"])
def test_a_volume_of_no_size_is_as_if_it_were_not_there(size: str) -> None:
    handled = Handled()
    handled.handlers.handle(VOLUMES, [Changed(decoded(volume("pv", size=size), VOLUMES.type))])

    assert handled.tables.volumes.volume("pv") is None
    assert [(one.kind, one.name, one.on_object) for one in handled.reports.problems] == [
        ("PersistentVolume", "pv", False)
    ]


@pytest.mark.parametrize(
    "topology",
    [
        pytest.param({"matchLabels": {f"k{n}": "v" for n in range(5000)}}, id="labels"),
        pytest.param(
            {"matchExpressions": [{"key": "zone", "operator": "In", "values": [f"z{n}" for n in range(5000)]}]},
            id="values",
        ),
    ],
)
def test_a_capacity_whose_topology_has_thousands_of_parts_is_as_if_it_were_not_there(topology: dict[str, Any]) -> None:
    handled = Handled()
    made = {"metadata": {"name": "c", "namespace": "kube-system"}, "storageClassName": "fast", "capacity": "5Gi"}
    handled.handlers.handle(CAPACITIES, [Changed(decoded({**made, "nodeTopology": topology}, CAPACITIES.type))])

    assert handled.tables.volumes.of_class("fast") is None
    ((kind, name, message),) = [(one.kind, one.name, one.message) for one in handled.reports.problems]
    assert (kind, name) == ("CSIStorageCapacity", "kube-system/c")
    assert message == "scheduling terms larger than 128"


def test_the_claims_of_a_volume_are_told_when_it_comes() -> None:
    tables = tables_of()
    show(tables, CLAIMS, bound(claim("data"), "pv"))
    tables.take_cluster_events()
    show(tables, VOLUMES, volume("pv"))

    assert list(tables.take_cluster_events().claims) == [("default", "data")]


def test_a_claim_with_a_selector_of_thousands_of_values_is_not_looked_for_and_says_so() -> None:
    tables = tables_of()
    values = [f"v{number}" for number in range(5000)]
    selector = {"matchExpressions": [{"key": "tier", "operator": "In", "values": values}]}
    show(tables, CLAIMS, claim("data", selector=selector))

    (claim_state,) = tables.volumes.of_pod(pod("p", **with_claims("data"))).claim_states

    assert claim_state.alike[1] == (
        'persistentvolumeclaim "data" exceeds a limit of this scheduler: scheduling terms larger than 128'
    )


def test_a_claim_that_changes_in_nothing_that_is_read_tells_nobody() -> None:
    tables = tables_of()
    show(tables, CLAIMS, claim("data"))
    tables.take_cluster_events()
    changed = claim("data")
    changed["metadata"] |= {"resourceVersion": "9", "annotations": {"note": "x"}}
    show(tables, CLAIMS, changed)

    assert not tables.take_cluster_events()
    found = tables.volumes.claim(("default", "data"))
    assert found is not None
    assert found.version == "9"
