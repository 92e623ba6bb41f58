"""Pods and nodes of the soak. Pure: the same generator gives the same manifests."""

import random
from collections.abc import Callable
from typing import Final, NamedTuple

from e2e.control_plane.admin import Json
from e2e.fire import reading
from e2e.fire.workload import CARDS, UNITS, container
from e2e.support.gpu_site import gpu_node

# Nodes on which there is never enough room, apart from all others, so that the latter show what a binding takes.
NARROW: Final = {"soak/pool": "narrow"}
WIDE: Final = {"soak/pool": "wide"}
IMPORTANT: Final = "soak-important"
FINALIZER: Final = "soak.example/kept"
_PODS_OF_AN_OWNER: Final = 40
_HOST_PORTS: Final = 50


class Kind(NamedTuple):
    """share: of all pods, beside the others'. waits: whether it may find no room; the others must be bound soon.

    timed: whether its time from coming to being bound counts. schedules: whether we are to bind it.
    """

    share: int
    change: Callable[[Json, int, random.Random], None]
    waits: bool = False
    timed: bool = True
    schedules: bool = True


def pod(number: int, kind: Kind, rng: random.Random) -> Json:
    """The pod of that number: one of a ReplicaSet that has no other name or uid than this one."""
    owner = number // _PODS_OF_AN_OWNER
    controller = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": f"set-{owner}", "uid": f"set-{owner}"}
    labels = {"app": f"app-{owner % 7}", "pod-template-hash": f"hash-{owner}"}
    made: Json = {
        "metadata": {
            "name": f"pod-{number}",
            "labels": labels,
            "annotations": {},
            "ownerReferences": [controller | {"controller": True}],
        },
        "spec": {
            "schedulerName": reading.SCHEDULER_NAMES[0],
            "terminationGracePeriodSeconds": 5,
            "nodeSelector": dict(WIDE),
            "containers": [container("app", rng.randint(1, 4))],
        },
    }
    kind.change(made, number, rng)
    return made


def node(name: str, labels: Json) -> Json:
    """A node of cards that no other node has had."""
    made = gpu_node(name, [UNITS] * CARDS)
    made["metadata"]["labels"] = {"kubernetes.io/hostname": name, **labels}
    return made


def inventory(name: str, unhealthy: int = 0) -> str:
    """The annotation of `node`. unhealthy: so many of its cards."""
    well: str = node(name, {})["metadata"]["annotations"][reading.INVENTORY]
    return well.replace('"healthy"', '"unhealthy"', unhealthy)


def _plain(_: Json, __: int, ___: random.Random) -> None:
    pass


def _several_containers(made: Json, _: int, rng: random.Random) -> None:
    made["spec"]["initContainers"] = [
        container("side", 1) | {"restartPolicy": "Always"},
        container("init", rng.randint(1, 6)),
    ]
    made["spec"]["containers"].append(container("beside", 0))


def _new_template(made: Json, number: int, _: random.Random) -> None:
    """Asks for an amount that nobody has asked for."""
    made["spec"]["containers"][0]["resources"]["limits"]["memory"] = f"{number}Ki"


def _two_cards(made: Json, _: int, rng: random.Random) -> None:
    made["metadata"]["labels"][reading.GPU_COUNT] = "2"
    made["spec"]["containers"] = [container("app", 2 * rng.randint(1, 4))]


def _exclusive(made: Json, _: int, __: random.Random) -> None:
    made["metadata"]["annotations"][reading.EXCLUSIVE] = "true"


def _apart(made: Json, number: int, _: random.Random) -> None:
    """Pods of one application on nodes of their own, or evenly."""
    own = {"matchLabels": {"role": made["metadata"]["labels"].setdefault("role", f"role-{number % 30}")}}
    term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": own}
    if number % 2:
        made["spec"]["affinity"] = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    else:
        made["spec"]["topologySpreadConstraints"] = [{**term, "maxSkew": 1, "whenUnsatisfiable": "ScheduleAnyway"}]


def _host_port(made: Json, number: int, _: random.Random) -> None:
    port = 20_000 + number % _HOST_PORTS
    made["spec"]["containers"][0]["ports"] = [{"containerPort": port, "hostPort": port}]


def _mistaken(made: Json, number: int, _: random.Random) -> None:
    """Has a key that nobody reads, and no other pod has."""
    made["metadata"]["annotations"][f"gpushare/soak-{number}"] = "1"


def _gated(made: Json, _: int, __: random.Random) -> None:
    made["spec"]["schedulingGates"] = [{"name": "soak.example/gate"}]


def _claims(made: Json, number: int, _: random.Random) -> None:
    source = {"persistentVolumeClaim": {"claimName": f"claim-{number}"}}
    made["spec"]["volumes"] = [{"name": "data", **source}]


def _fits_nowhere(made: Json, number: int, _: random.Random) -> None:
    made["spec"]["containers"] = [container("app", UNITS + 1 + number % 100)]


def _forgotten(made: Json, _: int, __: random.Random) -> None:
    """For a scheduler that is not there, with units of a card."""
    made["spec"]["schedulerName"] = "default-scheduler"


def _lowly(made: Json, _: int, __: random.Random) -> None:
    made["spec"] |= {"nodeSelector": dict(NARROW), "containers": [container("app", UNITS // 2)]}


def _important(made: Json, _: int, __: random.Random) -> None:
    made["spec"] |= {"nodeSelector": dict(NARROW), "priorityClassName": IMPORTANT}
    made["spec"]["containers"] = [container("app", UNITS)]


KINDS: Final = {
    "plain": Kind(46, _plain),
    "several containers": Kind(10, _several_containers),
    "new template": Kind(2, _new_template),
    "two cards": Kind(5, _two_cards),
    "exclusive": Kind(3, _exclusive),
    "apart": Kind(5, _apart),
    "host port": Kind(2, _host_port),
    "mistaken": Kind(2, _mistaken),
    "gated": Kind(3, _gated, timed=False),
    "claims": Kind(2, _claims, timed=False),
    "fits nowhere": Kind(6, _fits_nowhere, waits=True, timed=False),
    "forgotten": Kind(3, _forgotten, waits=True, timed=False, schedules=False),
    "lowly": Kind(7, _lowly, waits=True, timed=False),
    "important": Kind(4, _important, waits=True, timed=False),
}
