"""Events about pods and nodes."""

from dataclasses import replace

import pytest

from scheduler.kube.port import ApiConflict, ApiNotFound, ApiRejected, EventRecord, EventSeries
from tests.contract.under_test import ClusterUnderTest, SeenEvent

NOW_S = 1_800_000_000.25
SERIES = EventSeries(count=2, last_time_s=NOW_S + 60.0)


def event(under_test: ClusterUnderTest, name: str = "p.17") -> EventRecord:
    return EventRecord(
        name=name,
        kind="Pod",
        namespace=under_test.namespace,
        object_name="p",
        object_uid="00000000-0000-0000-0000-000000000001",
        type="Warning",
        reason="FailedScheduling",
        action="Scheduling",
        note="0/3 nodes are available",
        time_s=NOW_S,
        reporting_controller="example.com/scheduler",
        reporting_instance="scheduler-0",
    )


class EventContract:
    """What `port.Cluster.create_event` and `update_event` do."""

    async def test_an_event_is_stored_with_what_it_is_about(self, under_test: ClusterUnderTest) -> None:
        record = event(under_test)

        await under_test.cluster.create_event(record)

        stored = await under_test.operator.event(under_test.namespace, record.name)
        assert stored == SeenEvent(record.reason, record.note, record.object_uid, count=0)

    async def test_a_series_is_set_on_an_event_made_before(self, under_test: ClusterUnderTest) -> None:
        record = event(under_test)
        await under_test.cluster.create_event(record)

        for count in (2, 3):
            await under_test.cluster.update_event(record, replace(SERIES, count=count))

        stored = await under_test.operator.event(under_test.namespace, record.name)
        assert stored == SeenEvent(record.reason, record.note, record.object_uid, count=3)

    async def test_the_series_of_an_event_that_is_gone_is_not_found(self, under_test: ClusterUnderTest) -> None:
        with pytest.raises(ApiNotFound):
            await under_test.cluster.update_event(event(under_test), SERIES)

    async def test_a_name_that_is_taken_is_a_conflict(self, under_test: ClusterUnderTest) -> None:
        await under_test.cluster.create_event(event(under_test))

        with pytest.raises(ApiConflict) as said:
            await under_test.cluster.create_event(event(under_test))

        assert said.value.status == 409

    async def test_a_namespace_that_does_not_exist_is_not_found(self, under_test: ClusterUnderTest) -> None:
        lost = replace(event(under_test), namespace=f"{under_test.namespace}-gone")

        with pytest.raises(ApiNotFound):
            await under_test.cluster.create_event(lost)

    @pytest.mark.parametrize(
        "wrong", [pytest.param({"reason": ""}, id="no reason"), pytest.param({"type": "Bad"}, id="unknown type")]
    )
    async def test_an_event_that_the_api_does_not_allow_is_refused(
        self, under_test: ClusterUnderTest, wrong: dict[str, str]
    ) -> None:
        with pytest.raises(ApiRejected) as said:
            await under_test.cluster.create_event(replace(event(under_test), **wrong))  # type: ignore[arg-type]

        assert said.value.status == 422

    @pytest.mark.parametrize(
        ("note", "kept"),
        [
            pytest.param("x" * 1024, "x" * 1024, id="as long as it may be"),
            pytest.param("x" * 1025, "x" * 1021 + "…", id="one character too long"),
            pytest.param("xä" + "ä" * 1000, "x" + "ä" * 510 + "…", id="too long in bytes"),
        ],
    )
    async def test_a_note_is_cut_to_the_1024_bytes_that_a_server_takes(
        self, under_test: ClusterUnderTest, note: str, kept: str
    ) -> None:
        await under_test.cluster.create_event(replace(event(under_test), note=note))

        stored = await under_test.operator.event(under_test.namespace, "p.17")
        assert stored is not None
        assert stored.note == kept

    async def test_the_event_of_a_node_is_in_the_default_namespace(self, under_test: ClusterUnderTest) -> None:
        name = f"{under_test.namespace}-n.1"
        about_node = replace(
            event(under_test, name), kind="Node", namespace="", object_name=f"{under_test.namespace}-n"
        )

        await under_test.cluster.create_event(about_node)

        assert await under_test.operator.event("default", name) is not None
