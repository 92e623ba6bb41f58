"""The contract of `port.Cluster`, kept by the scheduler's own client with a real kube-apiserver.

The suite is `tests/contract`, the same that the cluster in memory passes: what the simulation claims of an API server
is what an API server does. Its tests make nodes and ConfigMaps in kube-system, so they run only where the cluster is
ours alone.
"""

import random
from collections.abc import AsyncIterator

import pytest

from e2e.control_plane import provider
from e2e.control_plane.admin import Admin
from e2e.suites.contract_operator import ApiOperator
from scheduler.kube.rest.client import ClientOptions, KubeCluster
from scheduler.kube.rest.client_config.connect import connect
from scheduler.kube.rest.watching import Listing, WatchOptions
from tests.contract.binding_contract import BindingContract
from tests.contract.event_contract import EventContract
from tests.contract.lease_contract import LeaseContract
from tests.contract.status_contract import StatusContract
from tests.contract.under_test import ClusterUnderTest
from tests.contract.volume_contract import VolumeContract
from tests.contract.watch_contract import WatchContract


@pytest.fixture
def listing() -> Listing:
    return Listing.STREAMED


@pytest.fixture
async def under_test(
    cluster: provider.Target, admin: Admin, namespace: str, listing: Listing
) -> AsyncIterator[ClusterUnderTest]:
    connection = await connect({}, kubeconfig=cluster.kubeconfig_path(), context=cluster.context)
    options = ClientOptions(watch=WatchOptions(listing=listing, page=100))
    client = KubeCluster(connection, random.Random(1), options)  # noqa: S311 - spreads the ends of watches
    async with ApiOperator(admin) as operator:
        yield ClusterUnderTest(client, operator, namespace)
    await client.close()


class TestServerBinding(BindingContract):
    pass


class TestServerEvents(EventContract):
    pass


class TestServerLeases(LeaseContract):
    pass


class TestServerStatus(StatusContract):
    pass


class TestServerVolumes(VolumeContract):
    pass


@pytest.mark.parametrize("listing", [Listing.STREAMED, Listing.PAGED])
class TestServerWatching(WatchContract):
    pass
