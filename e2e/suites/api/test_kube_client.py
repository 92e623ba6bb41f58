"""The scheduler's client on a real kube-apiserver: what only a real one can show.

What the port promises is in `test_contract.py`; here is what lies below it: TLS, tokens, rights, expired versions,
large objects, and that this server takes what is sent to it.
"""

import asyncio
import base64
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from pathlib import Path
from typing import Any, TypeAlias, cast

import pytest
import yaml

from e2e.control_plane import provider
from e2e.control_plane.admin import Admin, Json
from e2e.control_plane.cluster import ControlPlane
from scheduler.kube import objects, port
from scheduler.kube.reflector import WatchBackoff, reflect
from scheduler.kube.rest.client import ClientOptions, KubeCluster
from scheduler.kube.rest.client_config.connect import connect
from scheduler.kube.rest.reviews import NEEDED
from scheduler.kube.rest.watching import Listing, WatchOptions
from tests.support.servers.certificates import CA

ClientOf: TypeAlias = Callable[..., Awaitable[KubeCluster]]
EVERY_LISTING = pytest.mark.parametrize("listing", [Listing.STREAMED, Listing.PAGED])


@pytest.fixture
async def client_of(cluster: provider.Target) -> AsyncIterator[ClientOf]:
    """Makes clients of the cluster, closed after the test."""
    made: list[KubeCluster] = []

    async def make(watch: WatchOptions | None = None, kubeconfig: Path | None = None) -> KubeCluster:
        connection = await connect({}, kubeconfig=kubeconfig or cluster.kubeconfig_path(), context=cluster.context)
        rng = random.Random(1)  # noqa: S311 a seed, no secret
        made.append(KubeCluster(connection, rng, ClientOptions(watch=watch or WatchOptions())))
        return made[-1]

    yield make
    for client in made:
        await client.close()


@pytest.fixture
async def service_account(cluster: provider.Target, admin: Admin, namespace: str, tmp_path: Path) -> Path:
    """A kubeconfig with the token of a service account that has no rights, in a file that may be rotated: `token`."""
    accounts = f"/api/v1/namespaces/{namespace}/serviceaccounts"
    await admin.create(accounts, {"metadata": {"name": "somebody"}})
    issued = await admin.create(f"{accounts}/somebody/token", {"spec": {"expirationSeconds": 600}})
    (tmp_path / "token").write_text(issued["status"]["token"] + "\n", encoding="utf-8")
    return as_user(cluster, tmp_path, {"tokenFile": str(tmp_path / "token")})


def as_user(cluster: provider.Target, folder: Path, user: Json) -> Path:
    document = yaml.safe_load(cluster.kubeconfig_path().read_text(encoding="utf-8"))
    for entry in document["users"]:
        entry["user"] = user
    path = folder / "kubeconfig"
    path.write_text(yaml.safe_dump(document), encoding="utf-8")
    return path


def pod(name: str, annotations: dict[str, str] | None = None) -> Json:
    containers = [{"name": "c", "image": "none", "imagePullPolicy": "Never"}]
    metadata = {"name": name, "annotations": annotations or {}}
    return {"metadata": metadata, "spec": {"schedulerName": "nobody", "containers": containers}}


def pods_of(namespace: str) -> port.Kind[objects.PodObject]:
    return port.Kind("pods", objects.PodObject, f"/api/v1/namespaces/{namespace}/pods", port.PODS.field_selector)


async def listed(client: KubeCluster, kind: port.Kind[objects.PodObject]) -> list[Any]:
    """The events up to the end of the list."""
    events: list[Any] = []
    async with aclosing(cast("Any", client.watch(kind, None))) as batches:
        async for batch in batches:
            events += batch
            if any(isinstance(event, port.ListEnds) for event in batch):
                break
    return events


@pytest.mark.any_cluster
@EVERY_LISTING
async def test_objects_of_a_megabyte_pass(admin: Admin, namespace: str, client_of: ClientOf, listing: Listing) -> None:
    large = {f"example.com/{number}": "x" * 25_000 for number in range(10)}
    maps_path = f"/api/v1/namespaces/{namespace}/configmaps"
    for name in ("a", "b", "c"):
        await admin.create(maps_path, {"metadata": {"name": name}, "data": {"k": "x" * 1_000_000}})
        await admin.create(f"/api/v1/namespaces/{namespace}/pods", pod(name, large))
    config_maps = port.Kind("configmaps", objects.ConfigMap, maps_path)
    client = await client_of(WatchOptions(listing=listing))

    pods = await listed(client, pods_of(namespace))
    maps = await listed(client, cast("Any", config_maps))

    assert [event.object.metadata.annotations for event in pods[1:-1]] == [large] * 3
    # kube-root-ca.crt is there too where controllers run
    assert sum(len((event.object.data or {}).get("k", "")) for event in maps[1:-1]) == 3_000_000


@pytest.mark.any_cluster
async def test_an_administrator_lacks_no_right(client_of: ClientOf) -> None:
    assert await (await client_of()).missing_rights() == []


async def test_an_account_without_rights_is_told_every_missing_one(client_of: ClientOf, service_account: Path) -> None:
    client = await client_of(kubeconfig=service_account)

    assert await client.missing_rights() == [str(right) for right in NEEDED]
    with pytest.raises(port.ApiForbidden, match=r"somebody.*cannot watch resource") as raised:
        await listed(client, port.PODS)
    assert raised.value.status == 403


async def write_as_the_scheduler_does(client: KubeCluster, admin: Admin, namespace: str, name: str) -> None:
    """A pod's Binding and its Event, and what the server made of them."""
    pods = f"/api/v1/namespaces/{namespace}/pods"
    made = await admin.create(pods, pod(name))
    key = port.PodKey(namespace, name, made["metadata"]["uid"])

    await client.bind(port.Binding(key, "node-1", {"example.com/cards": "x"}), timeout_s=10.0)
    note = port.EventRecord(
        name=f"{name}.1",
        kind="Pod",
        namespace=namespace,
        object_name=name,
        object_uid=key.uid,
        type="Normal",
        reason="Scheduled",
        action="Binding",
        note="Successfully assigned",
        time_s=1_700_000_000.25,
        reporting_controller="gpushare-scheduler",
        reporting_instance="gpushare-scheduler-e2e",
    )
    await client.create_event(note)

    (bound,) = [one for one in await admin.items(pods) if one["metadata"]["name"] == name]
    assert (bound["spec"]["nodeName"], bound["metadata"]["annotations"]["example.com/cards"]) == ("node-1", "x")
    events = await admin.items(f"/apis/events.k8s.io/v1/namespaces/{namespace}/events")
    assert [event["reason"] for event in events if event["metadata"]["name"] == note.name] == ["Scheduled"]


@pytest.fixture
async def scheduling_account(admin: Admin, namespace: str, service_account: Path) -> Path:
    """As `service_account`, with the right to do everything in its namespace."""
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"}
    subject = {"kind": "ServiceAccount", "name": "somebody", "namespace": namespace}
    bindings = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/rolebindings"
    await admin.create(bindings, {"metadata": {"name": "somebody"}, "roleRef": role, "subjects": [subject]})
    return service_account


@pytest.mark.any_cluster
async def test_a_binding_and_an_event_are_written_with_a_token_that_is_rotated(
    admin: Admin, namespace: str, client_of: ClientOf, scheduling_account: Path, tmp_path: Path
) -> None:
    token = tmp_path / "token"
    good = token.read_text(encoding="utf-8")
    token.write_text("outdated", encoding="utf-8")
    client = await client_of(kubeconfig=scheduling_account)
    token.write_text(good, encoding="utf-8")

    # The first request is answered with 401, and only then is the file read again.
    await write_as_the_scheduler_does(client, admin, namespace, "a")
    await write_as_the_scheduler_does(client, admin, namespace, "b")


async def test_a_server_with_a_foreign_certificate_gets_no_request(
    cluster: provider.Target, client_of: ClientOf, tmp_path: Path
) -> None:
    document = yaml.safe_load(cluster.kubeconfig_path().read_text(encoding="utf-8"))
    stranger = base64.b64encode(CA.encode()).decode()
    document["clusters"][0]["cluster"] = {
        "server": document["clusters"][0]["cluster"]["server"],
        "certificate-authority-data": stranger,
    }
    (tmp_path / "kubeconfig").write_text(yaml.safe_dump(document), encoding="utf-8")

    with pytest.raises(port.ApiSilent, match="certificate verify failed"):
        await (await client_of(kubeconfig=tmp_path / "kubeconfig")).pod("default", "a")


@EVERY_LISTING
async def test_a_reflector_outlives_the_server_and_misses_nothing(
    control_plane: ControlPlane, admin: Admin, namespace: str, client_of: ClientOf, listing: Listing
) -> None:
    pods_path = f"/api/v1/namespaces/{namespace}/pods"
    for name in ("stays", "goes"):
        await admin.create(pods_path, pod(name))
    troubles: list[port.ApiError | None] = []
    noticed = asyncio.Event()

    def on_trouble(_: object, error: port.ApiError | None) -> None:
        troubles.append(error)
        noticed.set()

    client = await client_of(WatchOptions(listing=listing))
    source = reflect(
        client,
        pods_of(namespace),
        backoff=WatchBackoff(random.Random(1), reconnect_max_s=1.0),  # noqa: S311 a seed, no secret
        on_trouble=on_trouble,
    )
    alive: set[str] = set()

    async def until(names: set[str]) -> None:
        while alive != names:
            follow(await anext(source), alive)

    async with asyncio.timeout(60):
        await until({"stays", "goes"})
        meanwhile = asyncio.create_task(until({"stays", "comes"}))
        # Not in another thread: the server would end with it.
        with control_plane.cut_off():
            await noticed.wait()
        await admin.delete(f"{pods_path}/goes", {"gracePeriodSeconds": 0})
        await admin.create(pods_path, pod("comes"))
        await meanwhile

    assert isinstance(troubles[0], port.ApiSilent)
    assert troubles[-1] is None
    with pytest.raises(port.WatchExpired, match="too old resource version"):
        # Accepted first, and then told.
        assert [batch async for batch in client.watch(pods_of(namespace), "1") if batch] == []


def follow(batch: list[Any], alive: set[str]) -> None:
    """Keep a set of names as a consumer would keep its tables."""
    for event in batch:
        if isinstance(event, port.Changed):
            alive.add(event.object.metadata.name)
        if isinstance(event, port.Deleted):
            alive.remove(event.object.metadata.name)
