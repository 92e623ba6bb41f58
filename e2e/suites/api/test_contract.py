"""The contract of `port.Cluster`, kept by the scheduler's own client with a real kube-apiserver.

The suite is `tests/contract`, the same that the cluster in memory passes: what the simulation claims of an API server
is what an API server does. Its tests make nodes and ConfigMaps in kube-system, so they run only where the cluster is
ours alone.
"""

import json
import random
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack
from http import HTTPStatus
from types import TracebackType
from typing import Final, Self

import msgspec
import pytest

from e2e.control_plane import provider
from e2e.control_plane.admin import Admin, Json, done
from scheduler.kube import objects, storage
from scheduler.kube.rest.client import ClientOptions, KubeCluster
from scheduler.kube.rest.client_config.connect import connect
from scheduler.kube.rest.watching import Listing, WatchOptions
from tests.contract.binding_contract import BindingContract
from tests.contract.event_contract import EventContract
from tests.contract.lease_contract import LeaseContract
from tests.contract.status_contract import StatusContract
from tests.contract.under_test import ClusterUnderTest, Manifest, SeenEvent
from tests.contract.volume_contract import VolumeContract
from tests.contract.watch_contract import WatchContract

_CORE: Final = "/api/v1"
_EVENTS: Final = "/apis/events.k8s.io/v1"


class ApiOperator:
    """Satisfies `Operator`; leaving it removes what it made outside the namespace of the test.

    Every method raises UnexpectedAnswer when the server does not do what was asked.
    """

    def __init__(self, admin: Admin) -> None:
        self._admin = admin
        self._undo = AsyncExitStack()

    async def __aenter__(self) -> Self:
        """Nothing is made yet."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Remove nodes, and ConfigMaps of other namespaces."""
        await self._undo.aclose()

    async def create_node(self, manifest: Manifest) -> None:
        """See Operator."""
        await self._admin.create(f"{_CORE}/nodes", dict(manifest))
        self._undo.push_async_callback(self._admin.delete, f"{_CORE}/nodes/{manifest['metadata']['name']}")

    async def label_node(self, name: str, labels: Mapping[str, str | None]) -> None:
        """See Operator."""
        done(await self._admin.patch(f"{_CORE}/nodes/{name}", {"metadata": {"labels": dict(labels)}}))

    async def delete_node(self, name: str) -> None:
        """See Operator."""
        done(await self._admin.delete(f"{_CORE}/nodes/{name}"))

    async def create_pod(self, manifest: Manifest) -> objects.PodObject:
        """See Operator."""
        path = f"{_CORE}/namespaces/{manifest['metadata']['namespace']}/pods"
        made = await self._admin.create(path, dict(manifest))
        return msgspec.json.decode(json.dumps(made), type=objects.PodObject)

    async def annotate_pod(self, namespace: str, name: str, annotations: Mapping[str, str | None]) -> None:
        """See Operator."""
        body = {"metadata": {"annotations": dict(annotations)}}
        done(await self._admin.patch(_pod(namespace, name), body))

    async def set_phase(self, namespace: str, name: str, phase: str, reason: str = "") -> None:
        """See Operator."""
        body = {"status": {"phase": phase, "reason": reason or None}}
        done(await self._admin.patch(f"{_pod(namespace, name)}/status", body))

    async def delete_pod(self, namespace: str, name: str, grace_s: int = 30) -> None:
        """See Operator."""
        done(await self._admin.delete(_pod(namespace, name), {"gracePeriodSeconds": grace_s}))

    async def release_pod(self, namespace: str, name: str) -> None:
        """See Operator."""
        done(await self._admin.patch(_pod(namespace, name), {"metadata": {"finalizers": None}}))

    async def set_config_map(self, namespace: str, name: str, data: Mapping[str, str]) -> None:
        """See Operator."""
        path = f"{_CORE}/namespaces/{namespace}/configmaps"
        body: Json = {"metadata": {"name": name}, "data": dict(data)}
        made = await self._admin.post(path, body)
        if made.status == HTTPStatus.CONFLICT:
            made = await self._admin.put(f"{path}/{name}", body)
        else:
            self._undo.push_async_callback(self._admin.delete, f"{path}/{name}")
        done(made)

    async def create_claim(self, manifest: Manifest) -> storage.PersistentVolumeClaim:
        """See Operator."""
        path = f"{_CORE}/namespaces/{manifest['metadata']['namespace']}/persistentvolumeclaims"
        made = await self._admin.create(path, dict(manifest))
        return msgspec.json.decode(json.dumps(made), type=storage.PersistentVolumeClaim)

    async def create_volume(self, manifest: Manifest) -> storage.PersistentVolume:
        """See Operator."""
        made = await self._admin.create(f"{_CORE}/persistentvolumes", dict(manifest))
        path = f"{_CORE}/persistentvolumes/{manifest['metadata']['name']}"
        self._undo.push_async_callback(self._admin.delete, path)
        return msgspec.json.decode(json.dumps(made), type=storage.PersistentVolume)

    async def event(self, namespace: str, name: str) -> SeenEvent | None:
        """See Operator."""
        path = f"{_EVENTS}/namespaces/{namespace}/events/{name}"
        answer = await self._admin.get(path)
        if answer.status == HTTPStatus.NOT_FOUND:
            return None
        done(answer)
        seen = answer.body
        count = (seen.get("series") or {}).get("count", 0)
        return SeenEvent(seen["reason"], seen["note"], seen["regarding"]["uid"], count)


def _pod(namespace: str, name: str) -> str:
    return f"{_CORE}/namespaces/{namespace}/pods/{name}"


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
