"""What the author of a mistaken pod reads: Events and conditions of the running service. See decision 36."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from msgspec.structs import replace as wire_replace
from structlog.testing import capture_logs

from config.protocol import names
from config.protocol.inventory import Card, Health, Inventory, encode
from config.settings.scheduler import SchedulerConfiguration
from scheduler.kube import objects
from scheduler.testing.cluster.world import World
from tests.support.builders import UNIT_MIB, card, wire_node
from tests.support.service.looking import (
    A_SECOND_S,
    HOSTNAME,
    NOT_HELPFUL,
    arrives,
    cluster,
    comes,
    condition,
    events,
    node_of,
    objections,
    warnings,
)
from tests.support.service.process import scheduling, world


def mistakes(of: World, name: str = "p") -> list[str]:
    return [note for reason, note in warnings(of, name) if reason == "Mistake"]


def limits(**amounts: str) -> list[dict[str, Any]]:
    return [
        {"name": "c", "resources": {"limits": {f"aliyun.com/{k.replace('_', '-')}": v for k, v in amounts.items()}}}
    ]


# Keys that nobody reads


@pytest.mark.parametrize(
    ("options", "words"),
    [
        pytest.param(
            {"annotations": {"gpushare/exlusive": "true"}},
            "annotation gpushare/exlusive is unknown and has no effect: did you mean gpushare/exclusive?",
            id="a letter is missing",
        ),
        pytest.param(
            {"annotations": {"gpushare/card-model": "H100"}},
            "annotation gpushare/card-model is unknown and has no effect: did you mean gpushare/card-models?",
            id="singular",
        ),
        pytest.param(
            {"annotations": {"gpu-share/exclusive": "true"}},
            "annotation gpu-share/exclusive is unknown and has no effect: did you mean gpushare/exclusive?",
            id="another prefix",
        ),
        pytest.param(
            {"labels": {"aliyun.com/gpu-cout": "2"}},
            "label aliyun.com/gpu-cout is unknown and has no effect: did you mean aliyun.com/gpu-count?",
            id="label",
        ),
        pytest.param(
            {"containers": limits(gpu_mem="3", gpu_cout="2")},
            "resource aliyun.com/gpu-cout is unknown, so the pod waits for a node that offers it: did "
            'you mean label or annotation aliyun.com/gpu-count: "2"?',
            id="resource",
        ),
        pytest.param(
            {"containers": limits(gpu_mem="3", gpu_core="30")},
            "resource aliyun.com/gpu-core is unknown, so the pod waits for a node that offers it: did "
            "you mean aliyun.com/gpu-core.percentage?",
            id="resource, cut short",
        ),
        pytest.param(
            {"containers": limits(gpu_mem="32", gpu_count="2")},
            "container c has aliyun.com/gpu-count among its resources, where it assigns no cards: write it as a "
            'label or annotation aliyun.com/gpu-count: "2"',
            id="a limit for a label",
        ),
        pytest.param(
            {"annotations": {names.GPU_CORE: "30"}},
            "annotation aliyun.com/gpu-core.percentage has no effect: write it under a container's limits",
            id="an annotation for a limit",
        ),
        pytest.param(
            {"labels": {names.GPU_MEM: "3"}},
            "label aliyun.com/gpu-mem has no effect: write it under a container's limits",
            id="a label for a limit",
        ),
        pytest.param(
            {"labels": {names.EXCLUSIVE: "true"}},
            "label gpushare/exclusive has no effect: write it as an annotation",
            id="a label for an annotation",
        ),
        pytest.param(
            {"annotations": {names.CORDON: "0"}},
            "annotation gpushare/cordon has no effect on a pod: it is meant for nodes",
            id="of a node",
        ),
        pytest.param(
            {"containers": limits(gpu_mem="0")},
            "aliyun.com/gpu-mem is 0, so the pod gets no card: write 1 or more, or leave it out",
            id="zero",
        ),
        pytest.param(
            {"containers": [{"name": "c", "resources": {"requests": {names.GPU_MEM: "3"}}}]},
            "container c has aliyun.com/gpu-mem under requests only: write aliyun.com/gpu-mem: 3 under its limits",
            id="requests without limits",
        ),
    ],
)
async def test_a_mistake_is_told_once_with_what_to_write(options: dict[str, Any], words: str) -> None:
    of = cluster(a=[16])
    async with scheduling(of):
        await arrives(of, "p", 20, **options)
        of.nodes.patch("a", labels={"news": "1"})
        of.pods.update("default", "p", seen)
        await asyncio.sleep(A_SECOND_S)

        assert mistakes(of) == [words]


def seen(pod: objects.PodObject) -> objects.PodObject:
    """The pod with another label, which makes it be looked at again."""
    return wire_replace(pod, metadata=wire_replace(pod.metadata, labels={**(pod.metadata.labels or {}), "seen": "1"}))


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({"annotations": dict.fromkeys(sorted(names.LEGACY_KEYS), "x")}, id="legacy"),
        pytest.param({"labels": {"nvidia.com/gpu.product": "A100", "app": "gpu-player"}}, id="of others"),
        pytest.param({"annotations": {"k8s.amazonaws.com/gpu": "1", "example.com/gpu-mem": "1"}}, id="far from ours"),
        pytest.param(
            {"annotations": {names.CARD_POLICY: "spread"}, "labels": {names.GPU_COUNT: "1"}}, id="ours, and right"
        ),
        pytest.param({"containers": [*limits(gpu_mem="0"), *limits(gpu_mem="2")]}, id="zero of one container"),
        pytest.param(
            {"containers": limits(gpu_mem="2", gpu_count="2"), "labels": {names.GPU_COUNT: "2"}}, id="a limit, too"
        ),
    ],
)
async def test_what_is_no_mistake_is_not_told(options: dict[str, Any]) -> None:
    of = cluster(a=[16])
    async with scheduling(of):
        await arrives(of, "p", 20, **options)

        assert mistakes(of) == []


async def test_a_pod_full_of_mistakes_is_told_three() -> None:
    of = cluster(a=[16])
    async with scheduling(of):
        await arrives(of, "p", 3, annotations={f"gpushare/key-{number}{'x' * 100}": "1" for number in range(60)})

        (said,) = mistakes(of)
        assert said.count("is unknown and has no effect") == 3


async def test_a_misspelt_annotation_of_a_node_is_told() -> None:
    of = world()
    of.nodes.add(wire_node("a", [16], annotations={"gpushare/cordn": "0"}))
    async with scheduling(of):
        await asyncio.sleep(A_SECOND_S)

        assert warnings(of, "a") == [
            ("Mistake", "annotation gpushare/cordn is unknown and has no effect: did you mean gpushare/cordon?")
        ]


# Amounts


@pytest.mark.parametrize(
    ("amount", "unit_mib", "words"),
    [
        pytest.param("1Gi", 1024, "requests 1Gi, which is 1073741824 units: units are GiB here; write 1.", id="1Gi"),
        pytest.param("1536Mi", 1024, "units are GiB here; write 2.", id="rounded up"),
        pytest.param("1Gi", 1, "units are MiB here; write 1024.", id="1Gi where units are MiB"),
        pytest.param("16G", 1024, "units are GiB here; write 15.", id="16G"),
        pytest.param("500m", 1024, "requests 500m, not a whole number: units are whole GiB here; write 1.", id="500m"),
    ],
)
async def test_bytes_and_fractions_are_answered_with_what_to_write(amount: str, unit_mib: int, words: str) -> None:
    of = world()
    of.nodes.add(wire_node("a", [16], unit_mib=unit_mib))
    configuration = SchedulerConfiguration.model_validate({"bindTimeout": 0, "memoryUnitMiB": unit_mib})
    async with scheduling(of, configuration):
        await arrives(of, "p", containers=limits(gpu_mem=amount))

        assert objections(of, "p").endswith(words)


async def test_an_amount_that_the_server_shortens_is_no_mistake() -> None:
    of = world()
    of.nodes.add(wire_node("a", [80_000], unit_mib=1))
    configuration = SchedulerConfiguration.model_validate({"bindTimeout": 0, "memoryUnitMiB": 1})
    async with scheduling(of, configuration):
        comes(of, "p", containers=limits(gpu_mem="16k"))
        comes(of, "q", containers=limits(gpu_mem="16Ki"))
        await asyncio.sleep(A_SECOND_S)

        assert [node_of(of, name) for name in "pq"] == ["a", "a"]


# The scheduler's name


REQUESTS = "it requests GPU memory, but its schedulerName is"
FORGOTTEN = f"{REQUESTS} default-scheduler, which assigns no cards: add `schedulerName: gpushare-scheduler` to its spec"
MISSPELT = f"{REQUESTS} {{}}, probably misspelled: write `schedulerName: gpushare-scheduler`"


@pytest.mark.parametrize(
    ("name", "legacy", "words"),
    [
        pytest.param("default-scheduler", False, [FORGOTTEN], id="forgotten"),
        pytest.param("default-scheduler", True, [], id="beside legacy nodes it may choose cards"),
        pytest.param("volcano", False, [], id="of others"),
        *(
            pytest.param(name, True, [MISSPELT.format(name)], id=name)
            for name in ("gpushare-schduler", "gpushare-schedular", "gpushare-shceduler", "gpushare_scheduler")
        ),
        *(
            pytest.param(name, True, [], id=name)
            for name in ("gpushare-scheduler2", "gpushare-scheduler-b", "gpu-scheduler")
        ),
    ],
)
async def test_a_scheduler_name_that_leads_to_no_card_is_told_once_with_the_line_to_write(
    name: str, *, legacy: bool, words: list[str]
) -> None:
    of = cluster(a=[16])
    if legacy:
        of.nodes.add(wire_node("old", more={names.GPU_MEM: "32", names.GPU_COUNT: "2"}))
    async with scheduling(of):
        comes(of, "plain", 0, scheduler=name)
        await arrives(of, "p", 3, scheduler=name)
        of.pods.update("default", "p", seen)
        await asyncio.sleep(A_SECOND_S)

        assert (mistakes(of), mistakes(of, "plain")) == (words, [])


async def test_names_of_a_series_of_schedulers_are_no_misspellings() -> None:
    of = cluster(a=[16])
    configuration = SchedulerConfiguration.model_validate({"bindTimeout": 0, "profiles": [{"schedulerName": "team-a"}]})
    async with scheduling(of, configuration):
        comes(of, "other", 3, scheduler="team-b")
        comes(of, "p", 3, scheduler="taem-a")
        await asyncio.sleep(A_SECOND_S)

        assert [len(mistakes(of, name)) for name in ("other", "p")] == [0, 1]


# A card that fails under a pod


def announce(of: World, *cards: Card) -> None:
    of.nodes.patch("a", annotations={names.INVENTORY: encode(Inventory(UNIT_MIB, "", cards))})


async def test_a_pod_whose_card_fails_is_told_once_for_each_failure() -> None:
    of = cluster(a=[16, 16])
    sick = replace(card(0, 16, health=Health.UNHEALTHY), reason="xid-79")
    with capture_logs() as logs:
        async with scheduling(of):
            await arrives(of, "on-it", 10)
            await arrives(of, "beside-it", 10)
            announce(of, sick, card(1, 16))
            await asyncio.sleep(A_SECOND_S)
            announce(of, sick, replace(card(1, 16), model="N"))
            await asyncio.sleep(A_SECOND_S)

            failed = ("GPUUnhealthy", "card 0 (GPU-a-0) is unhealthy: xid-79; the pod uses this card of node a")
            assert events(of, "on-it")[1:] == [failed]
            assert len(events(of, "beside-it")) == 1

            announce(of, card(0, 16), card(1, 16))
            await asyncio.sleep(A_SECOND_S)
            announce(of, sick, card(1, 16))
            await asyncio.sleep(A_SECOND_S)

    lines = [(line["event"], line["pod"]) for line in logs if line["event"] == "card.failed"]
    assert lines == [("card.failed", "default/on-it")] * 2


async def test_a_pod_for_which_a_place_is_kept_on_a_card_that_fails_is_not_told() -> None:
    of = cluster(a=[16, 16])
    with capture_logs() as logs:
        async with scheduling(of) as process:
            for name in ("high", "low"):
                await arrives(of, name, 16, priority=20 if name == "high" else 1)
            await arrives(of, "waits", 16, priority=10)
            assert [kept.pod.key.name for kept in process.engine.nominations.on("a")] == ["waits"]
            announce(of, card(0, 16), card(1, 16, health=Health.UNHEALTHY))
            await asyncio.sleep(A_SECOND_S)

    assert "GPUUnhealthy" in [reason for reason, _ in events(of, "low")]
    assert "GPUUnhealthy" not in [reason for reason, _ in events(of, "waits")]
    assert [line["pod"] for line in logs if line["event"] == "card.failed"] == ["default/low"]


async def test_a_card_that_was_unhealthy_before_the_scheduler_came_is_no_news() -> None:
    of = cluster(a=[16])
    async with scheduling(of):
        await arrives(of, "p", 10)
    announce(of, card(0, 16, health=Health.UNHEALTHY))
    before = len(events(of, "p"))
    async with scheduling(of):
        await asyncio.sleep(A_SECOND_S)

    assert len(events(of, "p")) == before


MINUTES = 20
_UNKNOWN_OPERATOR = {
    "nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [{"matchExpressions": [{"key": HOSTNAME, "operator": "Resembles", "values": ["a"]}]}]
        }
    }
}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        pytest.param(
            {"gpu_mem": 1000}, "1 Insufficient GPU memory on one card: wants 1000, most free 16 (of 16)", id="too much"
        ),
        pytest.param(
            {"gpu_mem": 2, "affinity": _UNKNOWN_OPERATOR},
            "1 node(s) didn't match Pod's node affinity/selector",
            id="unknown operator of affinity",
        ),
        pytest.param(
            {"gpu_mem": 2, "tolerations": [{"key": "k", "operator": "Likes"}], "nodeSelector": {"tainted": "yes"}},
            "1 node(s) didn't match Pod's node affinity/selector",
            id="unknown operator of a toleration",
        ),
    ],
)
async def test_a_request_that_cannot_be_met_waits_with_a_reason_and_one_warning(
    options: dict[str, Any], message: str
) -> None:
    of = cluster(a=[16, 16])
    async with scheduling(of) as process:
        comes(of, "p", **options)
        for n in range(MINUTES):  # of a lively cluster
            comes(of, f"other-{n}", 16)
            of.nodes.patch("a", labels={"minute": str(n)})
            await asyncio.sleep(60)
            of.pods.remove("default", f"other-{n}")
        await asyncio.sleep(1)

        assert node_of(of, "p") == ""
        told = f"0/1 nodes are available: {message}.{NOT_HELPFUL}"
        assert condition(of, "p") == f"False {told}"
        assert warnings(of, "p") == [("FailedScheduling", told)]
        assert process.cycle.refused >= MINUTES // 5
        assert process.cycle.placed == MINUTES
