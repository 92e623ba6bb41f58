"""ImageLocality: what an image is worth, whose images count, and that all rows follow when one node pulls an image."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from config.settings.scheduler import SchedulerConfiguration, resolve
from scheduler.core.build import resource_names
from scheduler.framework.answers import PluginError
from scheduler.framework.profile import Profile
from scheduler.framework.runtime import Runtime
from scheduler.plugins import registry
from scheduler.plugins.node.image_locality import ImageLocality
from scheduler.pods.pod import Pod
from scheduler.state.changes import Change
from scheduler.state.tables import Tables
from tests.support.builders import pod, wire_node
from tests.support.judging import scored, tables_of

LOCALITY = ImageLocality()


def running(*images: str, init: tuple[str, ...] = (), volumes: tuple[str, ...] = (), name: str = "p") -> Pod:
    """A pod of these images."""
    return pod(
        name,
        containers=[{"name": f"c{number}", "image": image} for number, image in enumerate(images)],
        initContainers=[{"name": f"i{number}", "image": image} for number, image in enumerate(init)],
        volumes=[{"name": f"v{number}", "image": {"reference": image}} for number, image in enumerate(volumes)],
    )


@pytest.mark.parametrize(
    ("mib", "points"),
    [
        pytest.param(46, 0, id="half of it is the least"),
        pytest.param(700, 33, id="by its size, times the share of nodes"),
        pytest.param(2000, 100, id="half of it is the most"),
        pytest.param(2**40, 100, id="absurd"),
    ],
)
def test_an_image_counts_by_its_size_times_the_share_of_nodes_that_have_it(mib: int, points: int) -> None:
    tables = tables_of(wire_node("a", images={"web:1": mib}), wire_node("b"))
    assert scored(LOCALITY, running("web:1"), tables) == {"a": points * 1000, "b": 0}


@pytest.mark.parametrize(
    ("asking", "points"),
    [
        pytest.param(running("web:1"), 100, id="one container"),
        pytest.param(running("web:1", "other"), 49, id="two containers, one image is there"),
        pytest.param(running("web:1", "web:1"), 100, id="twice the same"),
        pytest.param(running("other", init=("web:1",)), 49, id="an init container"),
        pytest.param(running("other", volumes=("web:1",)), 100, id="a volume is no container"),
        pytest.param(running("other"), 0, id="no image is there"),
    ],
)
def test_the_images_of_all_containers_and_volumes_count(asking: Pod, points: int) -> None:
    tables = tables_of(wire_node("a", images={"web:1": 1000}))
    assert scored(LOCALITY, asking, tables) == {"a": points * 1000}


@pytest.mark.parametrize(
    ("asked", "there"),
    [
        ("web", "web:latest"),
        ("registry.example:5000/web", "registry.example:5000/web:latest"),
        ("registry.example:5000/web:2", "registry.example:5000/web:2"),
        ("web@sha256:00", "web@sha256:00"),
    ],
)
def test_a_name_without_tag_means_the_latest(asked: str, there: str) -> None:
    tables = tables_of(wire_node("a", images={there: 1000}))
    assert scored(LOCALITY, running(asked), tables) == {"a": 100_000}


def test_pods_of_other_images_are_of_another_class() -> None:
    assert running("web:1").template is running("web:1", name="q").template
    assert running("web:1").template is not running("web:2").template
    assert running("web:1").template is not running("web:1", volumes=("data:1",)).template


def default_profile() -> Profile:
    configuration = SchedulerConfiguration()
    return registry.build(resolve(configuration)[0], resource_names(configuration))


def kept_and_fresh(runtime: Runtime, asking: Pod) -> tuple[list[int], list[int]]:
    """The sums of what was kept, and those of a runtime that has kept nothing."""
    kept = runtime.evaluate(asking, runtime.signature(asking))
    fresh = Runtime(runtime.profile, runtime.tables)
    return kept.total.tolist(), fresh.evaluate(asking, fresh.signature(asking)).total.tolist()


def twenty_nodes() -> Tables:
    return tables_of(
        *(wire_node(f"n{number:02}", images={"web:1": 500} if number < 4 else None) for number in range(20))
    )


def test_every_row_follows_when_one_node_pulls_or_drops_an_image_or_a_node_comes_or_goes() -> None:
    tables, asking = twenty_nodes(), running("web:1")
    runtime = Runtime(default_profile(), tables)
    before, _ = kept_and_fresh(runtime, asking)
    first = tables.row_of["n00"]
    for changes in (
        [lambda: tables.upsert_node(wire_node("n10", images={"web:1": 500}))],
        [lambda: tables.upsert_node(wire_node("n01"))],
        [partial(tables.upsert_node, wire_node(f"new{number}")) for number in range(7)],
        [partial(tables.remove_node, f"new{number}") for number in range(7)],
    ):
        for change in changes:
            change()
            kept, fresh = kept_and_fresh(runtime, asking)
            assert kept == fresh
        assert kept[first] != before[first]
        before = kept


class Counting(ImageLocality):
    """Counts how often it is asked about all rows."""

    def __init__(self) -> None:
        super().__init__()
        self.rows = 0

    def score(self, pod, tables, state, rows):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201 - as ImageLocality
        scores = super().score(pod, tables, state, rows)
        self.rows += len(scores)
        return scores


def test_bookings_and_the_images_of_others_do_not_score_the_rows_again() -> None:
    tables, asking, rule = twenty_nodes(), running("web:1"), Counting()
    runtime = Runtime(Profile(score=((rule, 1),)), tables)
    signature = runtime.signature(asking)
    runtime.evaluate(asking, signature)
    asked = rule.rows
    tables.changes.note(3, int(Change.BOOKINGS))
    runtime.evaluate(asking, signature)
    assert rule.rows == asked
    tables.upsert_node(wire_node("n10", images={"other:1": 500}))
    runtime.evaluate(asking, signature)
    assert rule.rows == asked + 1


def test_a_cluster_input_is_for_rules_about_the_node_alone() -> None:
    class OfBookings(ImageLocality):
        depends = Change.IMAGES | Change.PODS

    with pytest.raises(PluginError, match="has a cluster_input"):
        replace(default_profile(), score=((OfBookings(), 1),))


def test_scores_of_some_rows_are_those_of_these_rows() -> None:
    tables = twenty_nodes()
    runtime = Runtime(default_profile(), tables)
    state = runtime.evaluate(running("web:1"), "any").state
    rows = np.array([tables.row_of["n07"], tables.row_of["n02"]], dtype=np.intp)
    assert LOCALITY.score(running("web:1"), tables, state, rows).tolist() == [0, 7_000]
