"""VolumeBinding, VolumeZone, VolumeRestrictions and NodeVolumeLimits."""

from random import Random
from typing import Any, Final

from tests.differential.groups.claims import (
    DRIVER,
    NO_PROVISIONER,
    attachment,
    capacity,
    claim,
    csi_driver,
    csi_node,
    mounted,
    storage_class,
    term,
    volume,
)
from tests.differential.manifests import HOSTNAME, REGION, ZONE, Manifest, Scenario, matches, node, pod

_SIZES: Final = ("1Gi", "5Gi", "10Gi", "20Gi")
_OLD_ZONE: Final = "failure-domain.beta.kubernetes.io/zone"
_OLD_REGION: Final = "failure-domain.beta.kubernetes.io/region"


def volume_bound(rng: Random, name: str) -> Scenario:
    """Claims that are bound, whose volumes only some nodes reach; and claims that are in no state to be used."""
    made = _cluster(rng, name)
    made.objects += [storage_class("wait"), storage_class("now", wait=False)]
    for number in range(4):
        made.objects.append(volume(f"pv{number}", of_class="now", claim=f"c{number}", only=_only(rng)))
        made.objects.append(claim(f"c{number}", of_class="now", bound_to=f"pv{number}"))
    leaving = {"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["kubernetes.io/pvc-protection"]}
    made.objects += [
        volume("anywhere", claim="anywhere"),
        claim("anywhere", bound_to="anywhere"),
        claim("no-volume", of_class="now", bound_to="nowhere"),
        claim("lost", of_class="now", bound_to="gone", phase="Lost"),
        claim("leaving", of_class="now", bound_to="pv0", meta=leaving),
        claim("unbound", of_class="now"),
        claim("classless"),
        claim("unknown-class", of_class="unknown"),
        claim("half-bound", of_class="now", volumeName="pv1"),
        claim("kept-for-it", of_class="wait", volumeName="pv2"),
    ]
    made.probes = [
        *(pod(f"p{number}", volumes=mounted(f"c{number}")) for number in range(4)),
        pod("two", volumes=mounted("c0", "c1")),
        pod("two-others", volumes=mounted("c2", "anywhere")),
        *(
            pod(f"of-{each}", volumes=mounted(each))
            for each in ("anywhere", "no-volume", "lost", "leaving", "unbound", "classless", "unknown-class", "missing")
        ),
        pod("of-half-bound", volumes=mounted("half-bound")),
        pod("of-kept-for-it", volumes=mounted("kept-for-it")),
        pod("elsewhere", namespace="other", volumes=mounted("c0")),
        pod("no-claims", volumes=[{"name": "v", "emptyDir": {}}]),
    ]
    return made


def volume_static(rng: Random, name: str) -> Scenario:
    """Claims that wait for their first consumer, and volumes that somebody has made: which node has one that fits."""
    made = _cluster(rng, name)
    made.objects += [storage_class("local", NO_PROVISIONER), storage_class("other", NO_PROVISIONER)]
    modes = (("ReadWriteOnce",), ("ReadWriteOnce",), ("ReadWriteOnce", "ReadOnlyMany"), ("ReadWriteMany",))
    for number in range(rng.randint(4, 10)):
        kind: dict[str, Any] = {"source": {"local": {"path": "/disks/1"}}}
        if rng.random() < 0.15:
            kind["volumeMode"] = "Block"
        if number < 2 and rng.random() < 0.4:
            # At most one for a claim: which of two kube-scheduler sees first is chance.
            kind |= {"claim": ("small", "taken")[number], "phase": "Available"}
        made.objects.append(
            volume(
                f"pv{number}",
                of_class=rng.choice(("local", "local", "other")),
                # No two are of one size: which of those kube-scheduler takes is chance.
                size=f"{1024 * rng.choice((1, 5, 10, 20)) + number}Mi",
                modes=rng.choice(modes),
                only=[term(HOSTNAME, rng.choice(made.nodes()))],
                labels={"disk": rng.choice(("ssd", "hdd"))},
                **kind,
            )
        )
    made.objects += [
        claim("small", of_class="local", size="1Gi"),
        claim("middle", of_class="local", size="6Gi"),
        claim("large", of_class="local", size="15Gi"),
        claim("shared", of_class="local", size="1Gi", modes=["ReadWriteMany"]),
        claim("block", of_class="local", size="1Gi", volumeMode="Block"),
        claim("fast", of_class="local", size="1Gi", selector=matches(disk="ssd")),
        claim("of-other", of_class="other", size="1Gi"),
    ]
    asked = ("small", "middle", "large", "shared", "block", "fast", "of-other")
    made.probes = [pod(f"of-{each}", volumes=mounted(each)) for each in asked]
    made.probes += [
        pod("two", volumes=mounted("small", "middle")),
        pod("three", volumes=mounted("small", "fast", "of-other")),
        pod("here", volumes=mounted("small"), nodeSelector={ZONE: "z1"}),
    ]
    return made


def volume_dynamic(rng: Random, name: str) -> Scenario:
    """Claims that wait for their first consumer, and are provisioned: allowed topologies, and free capacity."""
    made = _cluster(rng, name)
    zones = [{"matchLabelExpressions": [{"key": ZONE, "values": rng.sample(("z1", "z2", "z3"), rng.randint(1, 2))}]}]
    made.objects += [
        storage_class("anywhere"),
        storage_class("zonal", topologies=zones),
        storage_class("plain", "other.example.com"),
        csi_driver(capacity=rng.random() < 0.75),
    ]
    first, second = matches(**{ZONE: "z1"}), matches(**{ZONE: "z2"})
    # No two of a class reach the same node: which of those kube-scheduler counts is chance.
    pairs: tuple[tuple[Manifest | None, ...], ...] = (
        (first, second),
        (second, None),
        (matches(**{HOSTNAME: "n0"}), None),
        ({}, None),
        (None, None),
    )
    reach = (*rng.choice(pairs), *rng.choice(pairs), *rng.choice(pairs)[:1])
    for number, (of_class, on) in enumerate(
        zip(("anywhere", "anywhere", "zonal", "zonal", "plain"), reach, strict=True)
    ):
        size = rng.choice(_SIZES)
        limits = rng.choice(({"size": size}, {"size": size}, {"size": size, "largest": rng.choice(_SIZES)}, {}))
        made.objects.append(capacity(f"free{number}", of_class, on=on, **limits))
    for of_class in ("anywhere", "zonal", "plain"):
        made.objects += [claim(f"{of_class}-{size.lower()}", of_class=of_class, size=size) for size in ("2Gi", "8Gi")]
    picked = {"annotations": {"volume.kubernetes.io/selected-node": "n0"}}
    made.objects.append(claim("being-made", of_class="anywhere", meta=picked))
    made.objects.append(volume("ready", of_class="zonal", size="3Gi", only=[term(HOSTNAME, rng.choice(made.nodes()))]))
    made.probes = [
        pod(f"of-{of_class}-{size}", volumes=mounted(f"{of_class}-{size}"))
        for of_class in ("anywhere", "zonal", "plain")
        for size in ("2gi", "8gi")
    ]
    made.probes += [
        pod("two", volumes=mounted("anywhere-2gi", "zonal-2gi")),
        pod("two-large", volumes=mounted("anywhere-8gi", "zonal-8gi")),
        pod("of-being-made", volumes=mounted("being-made")),
    ]
    return made


def volume_ephemeral(rng: Random, name: str) -> Scenario:
    """Generic ephemeral volumes: their claim is there, is not there yet, or belongs to somebody else."""
    made = _cluster(rng, name)
    made.objects += [storage_class("wait"), storage_class("now", wait=False)]
    made.objects.append(volume("pv", of_class="now", claim="bound-v", only=_only(rng) or [term(ZONE, "z1")]))

    def owned(of: str) -> Manifest:
        owner = {"apiVersion": "v1", "kind": "Pod", "name": of, "uid": f"pod-default-{of}", "controller": True}
        return {"ownerReferences": [owner]}

    made.objects += [
        claim("waits-v", of_class="wait", meta=owned("waits")),
        claim("bound-v", of_class="now", bound_to="pv", meta=owned("bound")),
        claim("stolen-v", of_class="wait", meta=owned("somebody")),
        claim("nobodys-v", of_class="wait"),
        claim("unbound-v", of_class="now", meta=owned("unbound")),
        claim("orphan-v", of_class="now", bound_to="nowhere", meta=owned("orphan")),
    ]
    template = {"spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}
    volumes = [{"name": "v", "ephemeral": {"volumeClaimTemplate": template}}]
    names = ("waits", "bound", "stolen", "nobodys", "unbound", "orphan", "early")
    made.probes = [pod(each, volumes=volumes) for each in names]
    return made


def volume_zone(rng: Random, name: str) -> Scenario:
    """Volumes with labels of a zone or a region, old and new, and nodes with either, or none."""
    made = Scenario(name)
    for number in range(rng.randint(3, 7)):
        zone = rng.choice(("z1", "z2"))
        labels = rng.choice(
            (
                {ZONE: zone, REGION: "r1"},
                {ZONE: zone},
                {_OLD_ZONE: zone, _OLD_REGION: "r1"},
                {_OLD_ZONE: zone, ZONE: zone, REGION: "r2"},
                {REGION: "r1"},
                {},
            )
        )
        made.objects.append(node(f"n{number}", labels=labels))
    made.objects += [storage_class("wait"), storage_class("now", wait=False)]
    for number in range(6):
        labels = rng.choice(
            (
                {ZONE: "z1"},
                {ZONE: "z1__z2", REGION: "r1"},
                {_OLD_ZONE: "z2"},
                {_OLD_ZONE: "z1", _OLD_REGION: "r1"},
                {REGION: "r2"},
                {"zone": "z1"},
            )
        )
        made.objects.append(volume(f"pv{number}", of_class="now", claim=f"c{number}", labels=labels))
        made.objects.append(claim(f"c{number}", of_class="now", bound_to=f"pv{number}"))
    made.objects.append(claim("waits", of_class="wait"))
    made.probes = [pod(f"p{number}", volumes=mounted(f"c{number}")) for number in range(6)]
    made.probes.append(pod("two", volumes=mounted("c0", "c1")))
    made.probes.append(pod("one-waits", volumes=mounted("c2", "waits")))
    return made


def volume_restrictions(rng: Random, name: str) -> Scenario:
    """Claims for one pod at a time, and disks of the days before CSI, which two pods may not share."""
    made = _cluster(rng, name)
    for number in range(3):
        modes = ["ReadWriteOncePod"] if number < 2 else ["ReadWriteOnce"]
        made.objects.append(volume(f"pv{number}", claim=f"c{number}", modes=modes))
        made.objects.append(claim(f"c{number}", bound_to=f"pv{number}", modes=modes))
    there = made.nodes()
    made.objects.append(pod("uses-c0", on=rng.choice(there), volumes=mounted("c0")))
    made.objects.append(pod("uses-c2", on=rng.choice(there), volumes=mounted("c2")))
    made.objects.append(pod("other-c1", namespace="other", on=rng.choice(there), volumes=mounted("c1")))
    for number in range(4):
        made.objects.append(
            pod(f"r{number}", on=rng.choice(there), volumes=[_disk(rng), *([_disk(rng, "w")] * (number % 2))])
        )
    made.probes = [pod(f"of-c{number}", volumes=mounted(f"c{number}")) for number in range(3)]
    made.probes += [pod(f"p{number}", volumes=[_disk(rng)]) for number in range(5)]
    made.probes.append(pod("both", volumes=[_disk(rng, "w"), *mounted("c0")]))
    return made


def volume_limits(rng: Random, name: str) -> Scenario:
    """CSI drivers with a limit, or needed: what the node's pods use, what is attached besides, what the pod brings."""
    made = Scenario(name)
    count = rng.randint(3, 5)
    made.objects = [node(f"n{number}") for number in range(count)]
    # One of them at most: which of two drivers that a node lacks kube-scheduler names is chance.
    needed = rng.random() < 0.4
    made.objects += [storage_class("wait"), csi_driver(capacity=False, needed=needed)]
    for number in range(count):
        limits: dict[str, int | None] = {DRIVER: rng.choice((1, 2, 3, None)), "other.example.com": rng.choice((1, 2))}
        if rng.random() < 0.2:
            del limits[DRIVER]
        if rng.random() < 0.85:
            migrated = rng.choice(("", "", "kubernetes.io/gce-pd"))
            limits |= {"pd.csi.storage.gke.io": rng.choice((1, 2))} if migrated else {}
            made.objects.append(csi_node(f"n{number}", limits, migrated))
    for number in range(8):
        other: dict[str, Any] = (
            {"source": {"csi": {"driver": "other.example.com", "volumeHandle": f"pv{number}"}}}
            if number % 4 == 3
            else {}
        )
        modes = ["ReadWriteMany"]
        made.objects.append(volume(f"pv{number}", claim=f"c{number}", modes=modes, **other))
        made.objects.append(claim(f"c{number}", bound_to=f"pv{number}", modes=modes))
    made.objects += [claim("waits", of_class="wait"), claim("waits-too", of_class="wait")]
    for number in range(rng.randint(3, 8)):
        used = rng.sample([f"c{one}" for one in range(8)], rng.choice((1, 1, 2)))
        made.objects.append(pod(f"r{number}", on=f"n{rng.randrange(count)}", volumes=mounted(*used)))
    for number in range(rng.randint(0, 3)):
        made.objects.append(attachment(f"a{number}", f"n{rng.randrange(count)}", f"pv{rng.randrange(8)}"))
    disk = {"name": "d", "gcePersistentDisk": {"pdName": "disk"}}
    made.probes = [
        pod("one", volumes=mounted("c0")),
        pod("two", volumes=mounted("c0", "c1")),
        pod("three", volumes=mounted("c0", "c1", "c2")),
        pod("other-driver", volumes=mounted("c3")),
        pod("both-drivers", volumes=mounted("c4", "c7")),
        pod("new", volumes=mounted("waits")),
        pod("two-new", volumes=mounted("waits", "waits-too")),
        pod("migrated", volumes=[disk]),
        pod("two-migrated", volumes=[disk, {"name": "e", "gcePersistentDisk": {"pdName": "another"}}]),
    ]
    return made


def _cluster(rng: Random, name: str) -> Scenario:
    zones = [{ZONE: rng.choice(("z1", "z2", "z3"))} if rng.random() < 0.9 else {} for _ in range(rng.randint(3, 7))]
    return Scenario(name, [node(f"n{number}", labels=labels) for number, labels in enumerate(zones)])


def _only(rng: Random) -> list[Manifest]:
    zones = rng.sample(("z1", "z2", "z3"), rng.randint(1, 2))
    options: tuple[list[Manifest], ...] = (
        [term(ZONE, *zones)],
        [term(ZONE, *zones)],
        [term(HOSTNAME, "n0", "n1")],
        [term(HOSTNAME, "n2"), term(ZONE, zones[0])],
        [],
    )
    return rng.choice(options)


def _disk(rng: Random, name: str = "d") -> Manifest:
    read_only = {"readOnly": True} if rng.random() < 0.5 else {}
    which = rng.choice(("a", "b"))
    kinds: tuple[Manifest, ...] = (
        {"gcePersistentDisk": {"pdName": which, **read_only}},
        {"awsElasticBlockStore": {"volumeID": which, **read_only}},
        {"iscsi": {"targetPortal": "10.0.0.1", "iqn": f"iqn.2026-01.com.example:{which}", "lun": 0, **read_only}},
        {"rbd": {"monitors": rng.sample(("m1", "m2", "m3"), 2), "pool": "p", "image": which, **read_only}},
    )
    return {"name": name, **rng.choice(kinds)}
