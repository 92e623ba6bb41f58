"""The limits of a container by the driver: its request, or what it may use while that is free."""

from collections.abc import Mapping
from dataclasses import replace

import pytest

from config.protocol import memory_limit, names
from config.protocol.inventory import Card
from deviceplugin.allocation.container_share import ContainerShare, DriverLimit, most_mib_on_cards
from deviceplugin.allocation.decision import CardDecision, Share
from tests.support.node.container_shares import share_of
from tests.support.node.node_pods import UNIT_MIB, node_pod

CARDS = [Card(index=i, uuid=f"GPU-{i:04}", model="M", memory_mib=16384, units=16) for i in range(2)]
CARDS.append(Card(index=2, uuid="GPU-0002", model="M", memory_mib=2000, units=1))


def burst(share: ContainerShare, text: str) -> ContainerShare:
    annotations = {**share.pod.annotations, names.GPU_MEM_LIMIT: text}
    return replace(share, pod=replace(share.pod, annotations=annotations))


@pytest.mark.parametrize(
    ("share", "limit"),
    [
        pytest.param(share_of(3), DriverLimit(0, 3072), id="its request, and nothing guaranteed"),
        pytest.param(share_of(3, cards=2), DriverLimit(0, 3072), id="on each of two cards"),
        pytest.param(share_of(3, cards=3), DriverLimit(0, 2000), id="at most the smallest card"),
        pytest.param(burst(share_of(3), "8"), DriverLimit(3072, 8192), id="may use more"),
        pytest.param(burst(share_of(3, cards=2), "9"), DriverLimit(3072, 4608), id="more over both cards"),
        pytest.param(burst(share_of(3), "99"), DriverLimit(3072, 16384), id="at most the card"),
        pytest.param(burst(share_of(3, cards=3), "99"), DriverLimit(2000, 2000), id="a guarantee fits the limit"),
        pytest.param(burst(share_of(3), "c0=5"), DriverLimit(3072, 5120), id="by name"),
        pytest.param(burst(share_of(3), "2"), DriverLimit(0, 3072), id="less than its request is no limit"),
        pytest.param(burst(share_of(3), "all"), DriverLimit(0, 3072), id="no limit at all"),
    ],
)
def test_a_containers_limits(share: ContainerShare, limit: DriverLimit) -> None:
    assert share.driver_limit(CARDS) == limit


def test_a_pod_with_its_cards_to_itself_has_no_limit() -> None:
    share = share_of(3)
    assert replace(share, pod=replace(share.pod, exclusive=True)).driver_limit(CARDS) is None


def test_a_guarantee_of_nothing_is_written_out() -> None:
    """Without the variable, NVIDIA's hook guarantees as much as the limit."""
    found = DriverLimit(0, 3072).variables()
    assert found == {"NVIDIA_GPU_MEMORY_REQUEST": "0", "NVIDIA_GPU_MEMORY_LIMIT": "3072"}


def test_the_limits_of_a_thousand_containers_are_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    read, parse = list[str](), memory_limit.limits

    def counted(text: str, requests: Mapping[str, int]) -> dict[str, int]:
        read.append(text)
        return parse(text, requests)

    monkeypatch.setattr(memory_limit, "limits", counted)
    pod = burst(replace(share_of(1), pod=node_pod("p", [], init=[1] * 1000)), "8").pod
    shares = {one.name: (Share("GPU-0000", 0, 1, 16),) for one in pod.asking()}
    assert most_mib_on_cards(pod, CardDecision(shares, UNIT_MIB), CARDS) == {"GPU-0000": 8192}
    assert read == ["8"]
