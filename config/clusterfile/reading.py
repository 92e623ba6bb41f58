"""Reads cluster files and creates the Kubernetes objects that they describe. `docs/cluster-file.md` is the guide.

Used by the demo, the simulator and the tests. In addition to the format of `model`, it reads plain Kubernetes manifests
of nodes, pods and workloads.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeVar

from pydantic import BaseModel, ValidationError

from config.clusterfile.model import (
    CardGroup,
    ClusterDocument,
    ClusterFile,
    DescribedFault,
    NodeGroup,
    PodGroup,
    TimedPod,
)
from config.clusterfile.workloads import (
    Manifest,
    NamedMetadata,
    NodeManifest,
    PodManifest,
    StorageManifest,
    Workload,
    claims_of,
    plain,
    pods_of,
    stable_uuid,
)
from config.protocol import inventory, names
from config.settings.load import documents_in
from config.settings.mistakes import ConfigurationError, Mistake, mistakes_in

__all__ = ["ClusterFile", "TimedPod", "left_out", "node_manifests", "pod_manifests", "read", "said_of"]

M = TypeVar("M", bound=BaseModel)

_HOSTNAME: Final = "kubernetes.io/hostname"
_OFFERED: Final = {"cpu": "64", "memory": "512Gi", "ephemeral-storage": "1Ti", "pods": "110"}
_READY: Final = {"type": "Ready", "status": "True", "reason": "KubeletReady"}
_WORKLOADS: Final = frozenset({"Deployment", "ReplicaSet", "StatefulSet", "Job"})
# API groups of the kinds that are read. Other groups reuse the names: Job.batch.volcano.sh, Node.longhorn.io.
_APPS: Final = frozenset({"apps", "extensions"})
_GROUPS: Final = {
    "Node": frozenset({""}),
    "Pod": frozenset({""}),
    "Deployment": _APPS,
    "ReplicaSet": _APPS,
    "StatefulSet": _APPS,
    "Job": frozenset({"batch"}),
    "PersistentVolume": frozenset({""}),
    "PersistentVolumeClaim": frozenset({""}),
    "PodDisruptionBudget": frozenset({"policy"}),
}
_STORAGE_GROUP: Final = frozenset({"storage.k8s.io"})
# Kinds without a namespace, and the others.
_OF_THE_CLUSTER: Final = frozenset({"PersistentVolume", "StorageClass", "CSINode", "CSIDriver", "VolumeAttachment"})
_STORAGE: Final = _OF_THE_CLUSTER | {"PersistentVolumeClaim", "CSIStorageCapacity"}
_BUDGET: Final = "PodDisruptionBudget"
# Up to this number, ignored manifests are named; beyond it, only their kinds.
_MOST_NAMED: Final = 3
_OF_AN_ENTRY: Final = frozenset({"at_s", "atS", "runs_s", "runsS", "count"})


def read(*paths: Path) -> ClusterFile:
    """Read the files and combine them in order. Raises ConfigurationError with every mistake in all of them."""
    reader = _Reader()
    for path in paths:
        try:
            documents = documents_in(path)
        except ConfigurationError as error:
            reader.mistakes += error.mistakes
            continue
        reader.take(path, documents)
    reader.make_pods()
    reader.mistakes += _contradictions(reader.cluster)
    if reader.mistakes:
        raise ConfigurationError(reader.mistakes)
    return reader.cluster


def node_manifests(
    cluster: ClusterFile, unit_mib: int, *, gpu_mem: str = names.GPU_MEM, gpu_count: str = names.GPU_COUNT
) -> list[Manifest]:
    """Return Node manifests: ready, with the cards' inventory and totals in units of `unit_mib` MiB.

    A resource that the file itself names in `allocatable` keeps that value.
    """
    return [_node(group, name, unit_mib, gpu_mem, gpu_count) for group in cluster.nodes for name in group.node_names()]


def pod_manifests(cluster: ClusterFile) -> list[TimedPod]:
    """Return pods by time, then in the order of the files. Pods of a group share one `spec`: never change it."""
    pods = [TimedPod(group.at_s, group.runs_s, manifest) for group in cluster.pods for manifest in _copies(group)]
    return sorted(pods, key=lambda pod: pod.at_s)


@dataclass(slots=True)
class _Reader:
    """Builds a ClusterFile. Workloads create pods only after all files are read: a dump contains these pods, too."""

    cluster: ClusterFile = field(default_factory=ClusterFile)
    mistakes: list[Mistake] = field(default_factory=list)
    workloads: list[tuple[Path, Workload]] = field(default_factory=list)
    owners: set[tuple[str, str, str]] = field(default_factory=set)  # kind, namespace, name

    def take(self, path: Path, documents: Iterable[object]) -> None:
        for document in _without_lists(documents):
            if not isinstance(document, dict):
                message = f"expected a mapping, found {type(document).__name__}"
                self.mistakes.append(Mistake("", str(path), message))
            elif "kind" in document or "apiVersion" in document:
                self._take_manifest(path, document)
            elif part := self._checked(ClusterDocument, document, str(path)):
                self._add(path, nodes=part.nodes, pods=part.pods, faults=part.faults)

    def make_pods(self) -> None:
        for path, workload in self.workloads:
            if (workload.kind, workload.metadata.namespace, workload.metadata.name) not in self.owners:
                self._add(path, pods=[PodGroup(pod=PodManifest.model_validate(pod)) for pod in pods_of(workload)])
            there = {said_of(found) for found in self.cluster.storage}
            self._add(path, storage=[claim for claim in claims_of(workload) if said_of(claim) not in there])

    def _add(
        self,
        path: Path,
        *,
        nodes: Sequence[NodeGroup] = (),
        pods: Sequence[PodGroup] = (),
        faults: Sequence[DescribedFault] = (),
        storage: Sequence[Manifest] = (),
        budgets: Sequence[Manifest] = (),
    ) -> None:
        cluster = self.cluster
        for described in (*nodes, *pods, *faults, *storage, *budgets):
            cluster.files[id(described)] = str(path)
        cluster.nodes += nodes
        cluster.pods += pods
        cluster.faults += faults
        cluster.storage += storage
        cluster.budgets += budgets

    def _take_manifest(self, path: Path, manifest: dict[str, object]) -> None:
        kind = manifest.get("kind")
        label = f"{kind} {_label(manifest)}"
        source = f"{path}: {label}"
        self.owners |= set(_owners(manifest))
        if isinstance(kind, str) and (group := _foreign_group(kind, manifest)):
            self.cluster.ignored.append(f"{kind}.{group} {_label(manifest)}")
        elif isinstance(kind, str):
            self._take_kind(path, kind, manifest, source)
        else:
            expected = ", ".join(("Node", "Pod", *sorted(_WORKLOADS), "List"))
            message = f"expected one of {expected}, found {kind}" if kind else "is missing"
            self.mistakes.append(Mistake("kind", source, message))

    def _take_kind(self, path: Path, kind: str, manifest: dict[str, object], source: str) -> None:
        if kind == "Node":
            if node := self._checked(NodeManifest, manifest, source):
                self._add(path, nodes=[NodeGroup(node=node)])
        elif kind == "Pod":
            self.mistakes += _misplaced(manifest, source)
            if pod := self._checked(PodManifest, manifest, source):
                self._add(path, pods=[PodGroup(pod=pod)])
        elif kind in _WORKLOADS:
            if workload := self._checked(Workload, manifest, source):
                self.workloads.append((path, workload))
        elif kind in _STORAGE:
            if found := self._checked(StorageManifest, manifest, source):
                self._add(path, storage=[plain(found)])
        else:
            self.cluster.ignored.append(f"{kind} {_label(manifest)}")
            self._take_budget(path, manifest, source)

    def _take_budget(self, path: Path, manifest: dict[str, object], source: str) -> None:
        if manifest.get("kind") == _BUDGET and (found := self._checked(StorageManifest, manifest, source)):
            self._add(path, budgets=[plain(found)])

    def _checked(self, model: type[M], document: dict[str, object], source: str) -> M | None:
        try:
            return model.model_validate(document, by_alias=True, by_name=False)
        except ValidationError as error:
            self.mistakes += mistakes_in(error, model, document, lambda _: source)
            return None


def left_out(ignored: Sequence[str]) -> str:
    """Return one line about the manifests that are not read; "" if all are. ignored: as in ClusterFile."""
    if not ignored:
        return ""
    kinds = Counter(label.split(" ", 1)[0] for label in ignored)
    told = ignored if len(ignored) <= _MOST_NAMED else [f"{number} {kind}" for kind, number in sorted(kinds.items())]
    return f"Left out: {', '.join(told)} (not simulated; their pods count only if the files list them)."


def _foreign_group(kind: str, manifest: dict[str, object]) -> str:
    """Return the API group of a manifest whose kind only shares the name of a known kind; "" for the kind itself."""
    group, slash, _ = str(manifest.get("apiVersion", "")).rpartition("/")
    expected = _GROUPS.get(kind, _STORAGE_GROUP if kind in _STORAGE else None)
    if expected is None or group in expected or not slash:
        return ""
    return group


def _without_lists(documents: Iterable[object]) -> Iterator[object]:
    """Yield the documents, with `List`, `NodeList`, `PodList`, … replaced by their items."""
    for document in documents:
        kind = document.get("kind") if isinstance(document, dict) else None
        items = document.get("items") if isinstance(document, dict) else None
        if not isinstance(kind, str) or not kind.endswith("List") or not isinstance(items, list):
            yield document
            continue
        inner = {"kind": kind.removesuffix("List")} if kind != "List" else {}
        yield from _without_lists(inner | item if isinstance(item, dict) else item for item in items)


def _metadata(manifest: dict[str, object]) -> dict[str, object]:
    metadata = manifest.get("metadata")
    return metadata if isinstance(metadata, dict) else {}


def _label(manifest: dict[str, object]) -> str:
    metadata = _metadata(manifest)
    return "/".join(str(metadata[key]) for key in ("namespace", "name") if key in metadata) or "unnamed"


def _misplaced(manifest: dict[str, object], source: str) -> Iterator[Mistake]:
    """Yield a mistake for each field of a `pods` entry that was written inside the manifest, where it has no effect."""
    for name in sorted(_OF_AN_ENTRY & manifest.keys()):
        entry = f"`pods: [{{{name}: {str(manifest[name])[:16]}, pod: …}}]`"
        hint = f"is not a field of a manifest: write {entry}, with the manifest under pod"
        yield Mistake(name, source, hint)


def _owners(manifest: dict[str, object]) -> Iterator[tuple[str, str, str]]:
    metadata = _metadata(manifest)
    references = metadata.get("ownerReferences")
    for reference in references if isinstance(references, list) else []:
        if isinstance(reference, dict):
            yield str(reference.get("kind")), str(metadata.get("namespace", "default")), str(reference.get("name"))


def _contradictions(cluster: ClusterFile) -> Iterator[Mistake]:
    """Yield mistakes that span objects: duplicate names and cards, and faults of nonexistent objects."""
    for what, entries in (
        ("node", [(name, group) for group in cluster.nodes for name in group.node_names()]),
        ("pod", [(f"{p.pod.metadata.namespace}/{name}", p) for p in cluster.pods for name in p.pod_names()]),
        ("card", [(card.uuid, group) for group in cluster.nodes for card in group.cards if card.uuid]),
        ("storage object", [(said_of(found), found) for found in cluster.storage]),
    ):
        yield from _repeated(what, [(value, cluster.file_of(entry)) for value, entry in entries])
    yield from _of_nothing(cluster)


def _repeated(what: str, entries: Iterable[tuple[str, str]]) -> Iterator[Mistake]:
    """Yield a mistake for each repeated entry. entries: (unique item, the file that has it)."""
    found: defaultdict[str, list[str]] = defaultdict(list)
    for value, file in entries:
        found[value].append(file)
    twice = {value: files for value, files in found.items() if len(files) > 1}
    if twice:
        files = dict.fromkeys(file for each in twice.values() for file in each)
        message = f"expected each {what} once, found more than once: {', '.join(twice)}"
        yield Mistake("", ", ".join(files), message)


def _of_nothing(cluster: ClusterFile) -> Iterator[Mistake]:
    """Yield a mistake for each fault of a node or card that does not exist, with the fault's number in its file."""
    groups = {name: group for group in cluster.nodes for name in group.node_names()}
    numbers: defaultdict[str, int] = defaultdict(int)
    for fault in cluster.faults:
        file = cluster.file_of(fault)
        path = f"faults[{numbers[file]}]"
        numbers[file] += 1
        if fault.node not in groups:
            yield Mistake(f"{path}.node", file, f"node {fault.node} does not exist")
        elif fault.card is not None and groups[fault.node].cards:
            cards = _cards(groups[fault.node], fault.node, 1)
            if str(fault.card) not in {str(name) for card in cards for name in (card.index, card.uuid)}:
                yield Mistake(f"{path}.card", file, f"node {fault.node} has no card {fault.card}")


def said_of(manifest: Manifest) -> str:
    """Return the label of a storage object: `kind name` or `kind namespace/name`."""
    kind, metadata = str(manifest["kind"]), _metadata(manifest)
    name = str(metadata["name"])
    return f"{kind} {name}" if kind in _OF_THE_CLUSTER else f"{kind} {metadata.get('namespace', 'default')}/{name}"


def _node(group: NodeGroup, name: str, unit_mib: int, gpu_mem: str, gpu_count: str) -> Manifest:
    base = group.node or NodeManifest(metadata=NamedMetadata(name=name))
    metadata = {**plain(base.metadata), "name": name}
    labels = {_HOSTNAME: name} | base.metadata.labels | group.labels
    if group.count > 1:
        metadata.pop("uid", None)
        labels[_HOSTNAME] = name
    annotations = base.metadata.annotations | group.annotations
    offered: dict[str, str | int | float] = {}
    if cards := _cards(group, name, unit_mib):
        annotations[names.INVENTORY] = inventory.encode(inventory.Inventory(unit_mib, "simulated", cards))
        offered = {gpu_mem: str(sum(card.units for card in cards)), gpu_count: str(len(cards))}
    offered |= group.allocatable
    allocatable = (base.status.allocatable or _OFFERED) | offered
    taints = [*base.spec.taints, *(plain(taint) for taint in group.taints)]
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {**metadata, "labels": labels, "annotations": annotations},
        "spec": plain(base.spec) | ({"taints": taints} if taints else {}),
        "status": {"conditions": [_READY]}
        | plain(base.status)
        | {"capacity": (base.status.capacity or allocatable) | offered, "allocatable": allocatable},
    }


def _cards(group: NodeGroup, node: str, unit_mib: int) -> tuple[inventory.Card, ...]:
    cards: list[inventory.Card] = []
    for alike in group.cards:
        indexes = range(len(cards), len(cards) + alike.count)
        cards += [
            inventory.Card(
                index=index,
                uuid=alike.uuid or f"GPU-{stable_uuid(node, str(index))}",
                model=alike.model,
                memory_mib=alike.memory_mib,
                units=alike.memory_mib // unit_mib,
                numa=alike.numa,
                links=_links(alike, index, indexes),
                isolation=alike.isolation,
                compute=alike.compute,
                parent=alike.parent,
            )
            for index in indexes
        ]
    return tuple(cards)


def _links(alike: CardGroup, index: int, indexes: range) -> dict[str, str]:
    """Return the links of card `index`: to every other card of its group, or to the cards that the file names."""
    links = {str(other): alike.links for other in indexes} if isinstance(alike.links, str) else alike.links
    return {other: link for other, link in links.items() if other != str(index)}


def _copies(group: PodGroup) -> Iterator[Manifest]:
    pod = group.pod
    spec, rest = plain(pod.spec), plain(pod)
    for name in group.pod_names():
        metadata = plain(pod.metadata) | {"name": name, "namespace": pod.metadata.namespace}
        if group.count > 1:
            metadata.pop("uid", None)
        yield rest | {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
