"""Scenarios of the differential test on a real API server, and the reports of a scheduler's process on their pods.

    empty --having--> the nodes are known to every scheduler --end--> empty

Each probe is a separate pod for each scheduler, one at a time, and is removed before the next one is created. So all
are evaluated in the same state of the cluster. Nothing is pinned.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final

from e2e.control_plane.admin import Admin, Json, done, seen
from e2e.support.gpu_site import condition, is_bound
from e2e.support.told_of_pods import Told, told
from tests.differential.manifests import Manifest, Scenario, pod

SOON_S: Final = 20.0
NAMESPACES: Final[Mapping[str, Json]] = {"default": {}, "other": {"team": "a"}, "third": {"team": "b"}}
_PATHS: Final = {
    "Namespace": "/api/v1/namespaces",
    "Node": "/api/v1/nodes",
    "Pod": "/api/v1/namespaces/{}/pods",
    "Service": "/api/v1/namespaces/{}/services",
    "ReplicaSet": "/apis/apps/v1/namespaces/{}/replicasets",
    "StatefulSet": "/apis/apps/v1/namespaces/{}/statefulsets",
    "PodDisruptionBudget": "/apis/policy/v1/namespaces/{}/poddisruptionbudgets",
    "PersistentVolumeClaim": "/api/v1/namespaces/{}/persistentvolumeclaims",
    "PersistentVolume": "/api/v1/persistentvolumes",
    "StorageClass": "/apis/storage.k8s.io/v1/storageclasses",
    "CSINode": "/apis/storage.k8s.io/v1/csinodes",
    "CSIDriver": "/apis/storage.k8s.io/v1/csidrivers",
    "CSIStorageCapacity": "/apis/storage.k8s.io/v1/namespaces/{}/csistoragecapacities",
    "VolumeAttachment": "/apis/storage.k8s.io/v1/volumeattachments",
}
_AT_ONCE: Final = {"gracePeriodSeconds": 0, "propagationPolicy": "Background"}
# Fields that the API server does not accept from clients; a running pod is one that has a node.
_STATUS_APART: Final = frozenset({"Pod", "PersistentVolume", "PersistentVolumeClaim", "PodDisruptionBudget"})
_RUNS: Final = {"phase": "Running"}
_LOOK_EVERY_S: Final = 0.02
_ROUND: Final = "differential.example/round"
_OTHER_ROUND: Final = "didn't match Pod's node affinity/selector"
_EVENTS: Final = "/apis/events.k8s.io/v1/namespaces/{}/events"


@dataclass(frozen=True, slots=True)
class Preempted:
    """Outcome of preemption. node: the pod's nominated one. victims: namespace/name of the pods that leave for it.

    message: of the pod's condition.
    """

    node: str
    victims: frozenset[str]
    message: str


class ScenarioSite:
    """One scenario at a time."""

    def __init__(self, user: Admin, schedulers: Sequence[str]) -> None:
        """schedulers: names of the ones that serve the cluster."""
        self.user = user
        self._schedulers = schedulers
        self._round = 0
        self._uids: dict[str, str] = {}
        self._made: set[str] = set()
        self._classes: set[str] = set()

    @asynccontextmanager
    async def having(self, asked: Scenario) -> AsyncIterator[None]:
        """Create the objects, and remove them at the end. Every scheduler then knows the nodes.

        Raises UnexpectedAnswer, NotSeen.
        """
        try:
            await self._set_up(asked)
            yield
        finally:
            await asyncio.gather(*map(self._remove, self._made))
            self._made.clear()

    async def _set_up(self, asked: Scenario) -> None:
        self._round += 1
        self._uids.clear()
        for name, labels in NAMESPACES.items():
            await self.user.post("/api/v1/namespaces", {"metadata": {"name": name}})
            done(await self.user.patch(f"/api/v1/namespaces/{name}", {"metadata": {"labels": labels}}))
        of_kind: dict[str, list[Manifest]] = {}
        for each in asked.objects:
            of_kind.setdefault(each["kind"], []).append(each)
        for each in (*asked.objects, *asked.probes):
            if class_name := _with_class(each).get("spec", {}).get("priorityClassName"):
                await self._make_class(class_name, each)
        # One at a time: kube-scheduler takes the size of an image from the first node that it sees it on.
        for each in of_kind.pop("Node"):
            await self.make(each)
        for kind in sorted(of_kind.keys() - {"Namespace"}, key=lambda kind: kind == "Pod"):
            await asyncio.gather(*map(self.make, of_kind[kind]))
        for scheduler in self._schedulers:
            await self._nodes_are_known(scheduler, sum(each["kind"] == "Node" for each in asked.objects))

    async def told(self, probe: Manifest, scheduler: str) -> Told:
        """Return this scheduler's report on the probe, then remove the probe. Raises UnexpectedAnswer, NotSeen."""
        try:
            found = await self.attempted(probe, scheduler)
        finally:
            await self.user.delete(named(probe), _AT_ONCE)
        return told(found, await self._event(found))

    async def preempted(self, probe: Manifest, scheduler: str, expected: Mapping[str, frozenset[str]]) -> Preempted:
        """Return this scheduler's preemption for an unschedulable probe. expected: victims by possible node.

        Raises NotSeen if the pod is nominated for none of these nodes, or an expected victim does not leave.
        """
        before = await self._leaving()
        made = await self.attempted(probe, scheduler)
        found = await self.until(made | {"kind": "Pod"}, lambda pod: pod["status"].get("nominatedNodeName") in expected)
        node = found["status"]["nominatedNodeName"]
        for victim in expected[node] - before:
            namespace, _, name = victim.partition("/")
            await self.until(
                {"kind": "Pod", "metadata": {"namespace": namespace, "name": name}},
                lambda pod: "deletionTimestamp" in pod["metadata"],
            )
        leaving = await self._leaving()
        return Preempted(node, leaving - before | expected[node] & leaving, condition(found)["message"])

    async def refused(self, probe: Manifest) -> str:
        """Return the API server's error for the probe; "" if it would accept it."""
        answer = await self.user.post(f"{path_of(probe)}?dryRun=All", probe)
        return "" if answer.status < HTTPStatus.BAD_REQUEST else str(answer.body["message"])

    async def make(self, manifest: Manifest) -> None:
        """Create one more object. Raises UnexpectedAnswer."""
        meta, kind = manifest["metadata"], manifest["kind"]
        wanted = _with_class(self._with_stored_owners(manifest))
        if kind == "Node":
            labels = {**meta["labels"], _ROUND: str(self._round)}
            wanted = {**manifest, "metadata": {**meta, "labels": labels}}
        stored = await self.user.create(path_of(manifest), wanted)
        self._uids[meta["uid"]] = stored["metadata"]["uid"]
        at = named(manifest)
        self._made.add(at)
        if kind in _STATUS_APART and manifest.get("status", _RUNS) != _RUNS:
            done(await self.user.patch(f"{at}/status", {"status": manifest["status"]}))
        if "deletionTimestamp" in meta:
            done(await self.user.delete(at))

    async def attempted(self, probe: Manifest, scheduler: str) -> Json:
        """Create a pod for this scheduler; return it once it has a node or a message. Raises NotSeen."""
        wanted = _with_class(self._with_stored_owners(probe))
        made = await self.user.create(
            path_of(probe), {**wanted, "spec": {**wanted["spec"], "schedulerName": scheduler}}
        )
        self._made.add(named(probe))
        return await self.until(made | {"kind": "Pod"}, lambda pod: is_bound(pod) or bool(condition(pod)))

    async def until(self, manifest: Manifest, wanted: Callable[[Json], bool]) -> Json:
        """Return the object as soon as it is as wanted, possibly at once. Raises NotSeen."""
        query = {"fieldSelector": f"metadata.name={manifest['metadata']['name']}"}
        return await seen(self.user, path_of(manifest), wanted, query, within_s=SOON_S)

    def _with_stored_owners(self, manifest: Manifest) -> Manifest:
        meta = manifest["metadata"]
        owners = [{**owner, "uid": self._uids[owner["uid"]]} for owner in meta.get("ownerReferences", ())]
        return {**manifest, "metadata": {**meta, "ownerReferences": owners}} if owners else manifest

    async def _nodes_are_known(self, scheduler: str, count: int) -> None:
        """Wait until the message for a pod that tolerates everything and requests too much covers exactly these nodes.

        The pod is recreated repeatedly: a node that does not help wakes no pod, so an old message may stay.
        """
        counts = pod(
            "counts-nodes",
            requests={"cpu": "1000000"},
            tolerations=[{"operator": "Exists"}],
            nodeSelector={_ROUND: str(self._round)},
        )
        begin = re.compile(rf"0/{count} nodes are available: (?!.*{re.escape(_OTHER_ROUND)})")
        known = False
        async with asyncio.timeout(SOON_S):
            while not known:
                found = await self.attempted(counts, scheduler)
                known = begin.match(condition(found)["message"]) is not None
                done(await self.user.delete(named(counts), _AT_ONCE))

    async def _event(self, found: Json) -> Json:
        meta = found["metadata"]
        reason = "Scheduled" if is_bound(found) else "FailedScheduling"
        query = {"fieldSelector": f"regarding.uid={meta['uid']},reason={reason}"}
        # Our scheduler may have written an earlier Event, whose note ends before the result of the search for victims.
        as_condition = (
            (lambda _: True) if is_bound(found) else (lambda event: event["note"] == condition(found)["message"])
        )
        return await seen(self.user, _EVENTS.format(meta["namespace"]), as_condition, query, within_s=SOON_S)

    async def _leaving(self) -> frozenset[str]:
        pods = await self.user.items("/api/v1/pods")
        found = (pod["metadata"] for pod in pods if "deletionTimestamp" in pod["metadata"])
        return frozenset(f"{meta['namespace']}/{meta['name']}" for meta in found)

    async def _make_class(self, name: str, of: Manifest) -> None:
        """Create a priority class; return once the API server accepts pods with it."""
        if name in self._classes:
            return
        made = {"metadata": {"name": name}, "value": of["spec"]["priority"]}
        if policy := of["spec"].get("preemptionPolicy"):
            made["preemptionPolicy"] = policy
        await self.user.post("/apis/scheduling.k8s.io/v1/priorityclasses", made)
        self._classes.add(name)
        trial = {"metadata": {"name": "trial"}, "spec": {**pod("trial")["spec"], "priorityClassName": name}}
        async with asyncio.timeout(SOON_S):
            while await self.refused({"kind": "Pod", **trial}):  # noqa: ASYNC110 - nothing tells when it is known
                await asyncio.sleep(_LOOK_EVERY_S)

    async def _remove(self, at: str) -> None:
        left = await self.user.delete(at, _AT_ONCE)
        if left.body.get("metadata", {}).get("finalizers"):
            await self.user.patch(at, {"metadata": {"finalizers": None}})


def _with_class(manifest: Manifest) -> Manifest:
    """Return the manifest with a class name: only the API server writes the priority number."""
    spec = manifest.get("spec", {})
    if manifest["kind"] != "Pod" or "priority" not in spec:
        return manifest
    number, kept = spec["priority"], {key: value for key, value in spec.items() if key != "priority"}
    name = f"{'minus-' if number < 0 else ''}{abs(number)}-{spec.get('preemptionPolicy', 'preempts').lower()}"
    return {**manifest, "spec": {**kept, "priorityClassName": name}}


def path_of(manifest: Manifest) -> str:
    """Return the path of the object's collection."""
    return _PATHS[manifest["kind"]].format(manifest["metadata"].get("namespace", "default"))


def named(manifest: Manifest) -> str:
    """Return the path of the object itself."""
    return f"{path_of(manifest)}/{manifest['metadata']['name']}"
