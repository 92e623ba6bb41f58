"""Claims, volumes and storage classes of the cluster, and the volumes that we have assumed for pods.

    free ──assume──▶ ASSUMED ──settle──▶ as the API server shows it
      ▲                │
      └────release─────┘

ASSUMED: a pod that we placed gets the volume, or a new one on its node; the API server does not show this yet. For
other pods, the volume counts as bound. The API server wins.
Owned by the tables, and therefore by the event loop. No method awaits, so each one is atomic.
Source: kube-scheduler, plugins/volumebinding/binder.go and assume_cache.go.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from msgspec.structs import replace

from scheduler.pods.pod import Pod
from scheduler.pods.pod_volumes import DRIVERS, Attachable, ClaimKey, PodClaim
from scheduler.state.volumes.claim import Claim
from scheduler.state.volumes.plan import VolumePlan
from scheduler.state.volumes.pod_claims import PodClaims, pod_claims
from scheduler.state.volumes.reach import Reach, Reaches
from scheduler.state.volumes.storage_class import Capacity, OfClass, VolumeClass
from scheduler.state.volumes.volume import Attachment, Attachments, Volume, drop

# Old in-tree plugins that create volumes -> the drivers that replaced them, "" if no limit counts their volumes.
_PROVISIONERS: Final = {
    "kubernetes.io/aws-ebs": DRIVERS["awsElasticBlockStore"],
    "kubernetes.io/azure-disk": DRIVERS["azureDisk"],
    "kubernetes.io/azure-file": "",
    "kubernetes.io/cinder": DRIVERS["cinder"],
    "kubernetes.io/gce-pd": DRIVERS["gcePersistentDisk"],
    "kubernetes.io/portworx-volume": DRIVERS["portworxVolume"],
    "kubernetes.io/vsphere-volume": "",
}


class Changes(NamedTuple):
    """Changes. claims: those whose state may have changed. nodes: those whose limits or attachments changed.

    volumes: (class, reach) of volumes that were added, removed, assumed or released, if that may affect few nodes.
    opened: whether some class has more available volumes now.
    """

    claims: tuple[ClaimKey, ...]
    nodes: tuple[str, ...]
    volumes: tuple[tuple[str, Reach], ...]
    opened: bool


class Volumes:
    """State of storage. Collects changes until `take_changes`; see `Changes`.

    needed_drivers: drivers without which a node is unsuitable for pods with their volumes; read by the owner.
    """

    def __init__(self) -> None:
        self._touched: dict[ClaimKey, None] = {}
        self._touched_nodes: dict[str, None] = {}
        self._moved: dict[tuple[str, Reach], None] = {}
        self._opened = False
        self._claims: dict[ClaimKey, Claim] = {}
        self._volumes: dict[str, Volume] = {}
        self._classes: dict[str, OfClass] = {}
        # Provisioners that report their remaining capacity.
        self._told_capacity: set[str] = set()
        self.needed_drivers: set[str] = set()
        self._class_of_capacity: dict[str, str] = {}
        self._claims_of: dict[str, set[ClaimKey]] = {}
        # By attachment: volumes with different names may share one.
        self._names_of: dict[Attachable, set[str]] = {}
        self._reaches = Reaches()
        self._plans: dict[str, VolumePlan] = {}
        # Volume -> its assumed claim; claim -> the node of its new volume; and the number of pods that share each.
        self._assumed: dict[str, ClaimKey] = {}
        self._selected: dict[ClaimKey, str] = {}
        self.attachments = Attachments()
        self._pods_with: Counter[str | ClaimKey] = Counter()
        self._versions = 0
        # The pod evaluated last, and its claims.
        self._latest_pod: Pod | None = None
        self._latest: tuple[tuple[str, tuple[PodClaim, ...], str], PodClaims] | None = None

    # From the watches

    def set_claim(self, key: ClaimKey, claim: Claim | None) -> None:
        """Set a claim, None if it is deleted."""
        old = self._claims.get(key)
        if old is not None and claim is not None and replace(old, version=claim.version) == claim:
            self._claims[key] = claim
            return
        if claim is None:
            self._claims.pop(key, None)
        else:
            self._claims[key] = claim
        before, after = ("" if one is None else one.volume for one in (old, claim))
        if before != after:
            self._name(before, key, named=False)
            self._name(after, key, named=True)
        self._touch(key)

    def set_volume(self, name: str, volume: Volume | None) -> None:
        """Set a volume, None if it is deleted."""
        old = self._volumes.get(name)
        if old is not None and volume is not None and replace(old, version=volume.version) == volume:
            self._volumes[name] = volume
            return
        if old is not None:
            self._forget(old)
        self._attach(old, volume)
        if volume is None:
            self._volumes.pop(name, None)
        else:
            self._volumes[name] = volume
            self._note(volume)
        for key in self._claims_of.get(name, ()):
            self._touch(key)
        self._latest = None
        self._touch_nodes(self.attachments.nodes_with(name))

    def set_class(self, name: str, known: VolumeClass | None) -> None:
        """Set a StorageClass, None if it is deleted."""
        if known is None and name not in self._classes:
            return
        of_class = self._of_class(name)
        if of_class.known == known:
            return
        of_class.known = known
        self._changed(name, opened=known is not None)
        # The volumes' attachments depend on the class. Classes seldom change.
        for key, claim in self._claims.items():
            if claim.wants.class_name == name and not claim.volume:
                self._touch(key)

    def set_driver(self, name: str, *, tells_capacity: bool, needed: bool) -> None:
        """Set whether a driver's remaining capacity counts, and whether nodes need it for pods with its volumes."""
        if (name in self.needed_drivers) is not needed:
            (self.needed_drivers.add if needed else self.needed_drivers.discard)(name)
            # Drivers seldom change.
            for key in self._claims:
                self._touch(key)
        if (name in self._told_capacity) is tells_capacity:
            return
        (self._told_capacity.add if tells_capacity else self._told_capacity.discard)(name)
        for class_name, of_class in list(self._classes.items()):
            if of_class.known is not None and of_class.known.provisioner == name:
                self._changed(class_name, opened=not tells_capacity)

    def set_capacity(self, key: str, capacity: Capacity | None) -> None:
        """Set a capacity, None if it is deleted. key: namespace and name."""
        before = self._class_of_capacity.pop(key, None)
        if before is not None and (capacity is None or capacity.class_name != before):
            self._of_class(before).capacities.set(key, None)
            self._changed(before, opened=False)
        if capacity is None:
            return
        self._class_of_capacity[key] = capacity.class_name
        of_class = self._of_class(capacity.class_name)
        if of_class.capacities[key] != capacity:
            self._changed(capacity.class_name, opened=of_class.capacities.set(key, capacity))

    def set_drivers(self, node: str, limits: Mapping[str, int | None]) -> None:
        """Set the drivers on the node, with the number of volumes that it can attach; None for any number."""
        self._touch_nodes(self.attachments.set_drivers(node, limits))

    def set_attachment(self, name: str, attachment: Attachment | None) -> None:
        """Set an attachment, None if it is deleted."""
        self._touch_nodes(self.attachments.set(name, attachment))

    def take_changes(self) -> Changes:
        """Changes since the last call."""
        found = Changes(tuple(self._touched), tuple(self._touched_nodes), tuple(self._moved), self._opened)
        self._touched, self._touched_nodes, self._moved, self._opened = {}, {}, {}, False
        return found

    def moves_everywhere(self, class_name: str) -> None:
        """Record that the class's volumes changed on too many nodes to list them one by one."""
        self._changed(class_name, opened=False)

    # Assumed volumes

    def assume(self, uid: str, plan: VolumePlan) -> None:
        """Assume these volumes for a pod on its node."""
        self._plans[uid] = plan
        self._pods_with.update((*(volume for volume, _ in plan.taken), *plan.made))
        for volume, key in plan.taken:
            if volume not in self._assumed:
                self._assumed[volume] = key
                self._assume(volume, key)
        for key in plan.made:
            if self._selected.get(key) != plan.node:
                self._selected[key] = plan.node
                self._touch(key)

    def plan(self, uid: str) -> VolumePlan | None:
        """The pod's assumed volumes; None if there are none, or if all are settled."""
        return self._plans.get(uid)

    def settle(self, uid: str) -> None:
        """Drop the pod's assumptions, because the API server shows the result. No effect if there are none."""
        plan = self._plans.pop(uid, None)
        if plan is None:
            return
        for volume, key in plan.taken:
            if self._is_last(volume) and self._assumed.pop(volume, None) is not None:
                self._release(volume, key)
        for key in plan.made:
            if self._is_last(key):
                self._selected.pop(key, None)
                self._touch(key)

    # For the rules

    def claim(self, key: ClaimKey) -> Claim | None:
        return self._claims.get(key)

    def volume(self, name: str) -> Volume | None:
        return self._volumes.get(name)

    def claims_of(self, volume: str) -> tuple[ClaimKey, ...]:
        """Claims that name the volume."""
        return tuple(self._claims_of.get(volume, ()))

    def reach(self, volume: Volume) -> Reach | None:
        """Reach of a known volume; None if every node can use it."""
        return None if volume.affinity is None else self._reaches.of(volume.affinity)

    def of_class(self, name: str) -> OfClass | None:
        """State of a class; None if it is unknown."""
        return self._classes.get(name)

    def tells_capacity(self, provisioner: str) -> bool:
        """Whether the provisioner's remaining capacity counts."""
        return provisioner in self._told_capacity

    def selected(self, key: ClaimKey) -> str:
        """The node that we have chosen for the claim's new volume; "" for none."""
        return self._selected.get(key, "")

    def of_pod(self, pod: Pod) -> PodClaims:
        """State of the pod's claims. Consecutive pods often share them."""
        if self._latest_pod is pod and self._latest is not None:
            return self._latest[1]
        used = pod.volumes.claims
        asked = (pod.key.namespace, used, pod.key.uid if any(claim.ephemeral for claim in used) else "")
        if self._latest is None or self._latest[0] != asked:
            self._latest = asked, pod_claims(pod, self)
        self._latest_pod = pod
        return self._latest[1]

    def attached(self, key: ClaimKey) -> Attachable | None:
        """Attachment of a claim's volume, or of the volume to be created; None if no limit counts it.

        Source: kube-scheduler, plugins/nodevolumelimits/csi.go, getCSIDriverInfo.
        """
        claim = self._claims.get(key)
        if claim is None:
            return None
        volume = self._volumes.get(claim.volume) if claim.volume else None
        if volume is not None:
            return volume.attached
        of_class = self._classes.get(claim.wants.class_name)
        known = None if of_class is None else of_class.known
        if known is None or not claim.wants.class_name:
            return None
        driver = _PROVISIONERS.get(known.provisioner, known.provisioner)
        # No volume has such a handle, because handles contain no spaces.
        return (driver, f"of claim {key[0]}/{key[1]}") if driver else None

    def claims_sharing(self, pod: Pod) -> Iterator[ClaimKey]:
        """Claims of a pod, and claims whose volumes share an attachment with them."""
        keys = tuple(pod.claim_keys)
        yield from keys
        for one in dict.fromkeys((*map(self.attached, keys), *pod.volumes.attached)):
            for name in self._names_of.get(one, ()) if one is not None else ():
                yield from self._claims_of.get(name, ())

    def attached_to(self, node: str) -> frozenset[Attachable]:
        """Attachments of a node in the API server, regardless of their users. Source: getNodeVolumeAttachmentInfo."""
        shown = ((one.driver, self._volumes.get(one.volume)) for one in self.attachments.of_node(node))
        return frozenset(
            (driver, volume.attached[1])
            for driver, volume in shown
            if volume is not None and volume.by_csi and volume.attached is not None
        )

    # Helpers of the methods above

    def _name(self, volume: str, key: ClaimKey, *, named: bool) -> None:
        """Record that the claim names the volume (named=True), or no longer does."""
        if not volume:
            return
        if named:
            self._claims_of.setdefault(volume, set()).add(key)
        else:
            drop(self._claims_of, volume, key)

    def _attach(self, old: Volume | None, new: Volume | None) -> None:
        """Update the attachment of the volume."""
        before, after = (None if one is None else one.attached for one in (old, new))
        if before == after:
            return
        if old is not None and before is not None:
            drop(self._names_of, before, old.name)
        if new is not None and after is not None:
            self._names_of.setdefault(after, set()).add(new.name)

    def _note(self, volume: Volume) -> None:
        if volume.affinity is not None:
            self._reaches.take(volume.affinity)
        of_class = self._of_class(volume.class_name)
        if volume.claim is not None:
            self._keep((volume.claim.namespace, volume.claim.name), volume.name, of_class)
            # The claim for which it was assumed has it now, or has lost it.
            self._assumed.pop(volume.name, None)
        elif volume.is_free:
            of_class.free.add(volume, self.reach(volume))
            if volume.name in self._assumed:
                self._assume(volume.name, self._assumed[volume.name])
            self._moves(volume, opened=True)

    def _forget(self, volume: Volume) -> None:
        of_class = self._of_class(volume.class_name)
        if of_class.free.discard(volume.name):
            self._moves(volume, opened=False)
        for reference in (volume.claim, self._assumed.get(volume.name)):
            if reference is not None:
                key = reference if isinstance(reference, tuple) else (reference.namespace, reference.name)
                self._unkeep(key, volume.name, of_class)
        if volume.affinity is not None:
            self._reaches.drop(volume.affinity)
        if of_class.empty:
            del self._classes[volume.class_name]

    def _is_last(self, taken: str | ClaimKey) -> bool:
        """Record that one pod fewer uses an assumed volume or node. Return whether no pod is left."""
        self._pods_with[taken] -= 1
        if self._pods_with[taken]:
            return False
        del self._pods_with[taken]
        return True

    def _assume(self, name: str, key: ClaimKey) -> None:
        """Assume a free volume for a claim. A volume that is no longer free is skipped."""
        volume = self._volumes.get(name)
        if volume is not None and volume.is_free:
            of_class = self._of_class(volume.class_name)
            of_class.free.take(name, taken=True)
            self._keep(key, name, of_class)
            self._moves(volume, opened=False)

    def _release(self, name: str, key: ClaimKey) -> None:
        volume = self._volumes.get(name)
        if volume is not None and volume.is_free:
            of_class = self._of_class(volume.class_name)
            of_class.free.take(name, taken=False)
            self._unkeep(key, name, of_class)
            self._moves(volume, opened=True)

    def _keep(self, key: ClaimKey, name: str, of_class: OfClass) -> None:
        of_class.kept_for.setdefault(key, set()).add(name)
        self._touch(key)

    def _unkeep(self, key: ClaimKey, name: str, of_class: OfClass) -> None:
        drop(of_class.kept_for, key, name)
        self._touch(key)

    def _of_class(self, name: str) -> OfClass:
        found = self._classes.get(name)
        if found is None:
            found = self._classes[name] = OfClass()
            self._changed(name, opened=False)
        return found

    def _moves(self, volume: Volume, *, opened: bool) -> None:
        """Record that a free volume was added or removed. Nodes that cannot use it are not affected."""
        reach = self.reach(volume)
        if reach is None:
            self._changed(volume.class_name, opened=opened)
        else:
            self._moved[volume.class_name, reach] = None
            self._opened |= opened
            self._latest = None

    def _changed(self, class_name: str, *, opened: bool) -> None:
        # A version is never used for two states, even of different classes: a class may be deleted and created again.
        self._versions += 1
        self._of_class(class_name).version = self._versions
        self._opened |= opened
        self._latest = None

    def _touch(self, key: ClaimKey) -> None:
        self._touched[key] = None
        self._latest = None

    def _touch_nodes(self, nodes: Iterable[str]) -> None:
        self._touched_nodes.update(dict.fromkeys(nodes))
