"""The contract of `port.Cluster`, kept by the cluster in memory."""

import pytest

from scheduler.testing.cluster.cluster import MemoryCluster
from scheduler.testing.cluster.world import World
from tests.contract.binding_contract import BindingContract
from tests.contract.event_contract import EventContract
from tests.contract.lease_contract import LeaseContract
from tests.contract.memory_operator import MemoryOperator
from tests.contract.status_contract import StatusContract
from tests.contract.under_test import ClusterUnderTest
from tests.contract.volume_contract import VolumeContract
from tests.contract.watch_contract import WatchContract


@pytest.fixture
def under_test() -> ClusterUnderTest:
    world = World(lambda: 1_800_000_000.0)
    world.namespaces.create("contract")
    return ClusterUnderTest(MemoryCluster(world), MemoryOperator(world), "contract")


class TestBinding(BindingContract):
    pass


class TestEvents(EventContract):
    pass


class TestLeases(LeaseContract):
    pass


class TestStatus(StatusContract):
    pass


class TestVolumes(VolumeContract):
    pass


class TestWatching(WatchContract):
    pass
