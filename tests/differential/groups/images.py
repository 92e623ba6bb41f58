"""ImageLocality and NodeDeclaredFeatures."""

from random import Random
from typing import Final

from tests.differential.manifests import Manifest, Scenario, container, node, pod

_MIB: Final = 1024 * 1024
_IMAGES: Final = ("registry.example/web", "registry.example/web:latest", "registry.example/train:2", "db", "tool:1")
_RESTARTS: Final = "RestartAllContainersOnContainerExits"
_HOST_USERS: Final = "UserNamespacesHostNetworkSupport"


def images(rng: Random, name: str) -> Scenario:
    """Images of many sizes on some of the nodes, under one name or several."""
    made = Scenario(name)
    sizes = {image: rng.choice((5, 22, 30, 150, 700, 1500, 12_000)) * _MIB for image in _IMAGES}
    for number in range(rng.randint(3, 8)):
        each = node(f"n{number}")
        each["status"]["images"] = [
            {"names": _names(image), "sizeBytes": sizes[image]} for image in _IMAGES if rng.random() < 0.5
        ]
        made.objects.append(each)
    for number in range(7):
        asked = [container(f"c{one}") | {"image": rng.choice(_IMAGES)} for one in range(rng.choice((1, 1, 2, 3)))]
        more: Manifest = {"nodeSelector": {"kubernetes.io/hostname": "n0"}} if number == 6 else {}
        if rng.random() < 0.3:
            more["initContainers"] = [container("i") | {"image": rng.choice(_IMAGES)}]
        made.probes.append(pod(f"p{number}", containers=asked, **more))
    volumes = [{"name": "v", "image": {"reference": rng.choice(_IMAGES), "pullPolicy": "IfNotPresent"}}]
    made.probes.append(pod("mounts-an-image", volumes=volumes))
    return made


def declared_features(rng: Random, name: str) -> Scenario:
    """Nodes that declare what their kubelet can do, and pods that need some of it."""
    made = Scenario(name)
    for number in range(rng.randint(2, 6)):
        each = node(f"n{number}")
        declared = [feature for feature in (_HOST_USERS, _RESTARTS) if rng.random() < 0.5]
        if declared:
            each["status"]["declaredFeatures"] = sorted(declared)
        made.objects.append(each)
    rule = {"action": "RestartAllContainers", "exitCodes": {"operator": "In", "values": [88]}}
    restarts: Manifest = {"restartPolicy": "Never", "restartPolicyRules": [rule]}
    plain: Manifest = {"restartPolicy": "Never", "restartPolicyRules": [rule | {"action": "Restart"}]}
    made.probes = [
        pod("plain"),
        pod("restarts-all", containers=[container("c", **restarts)], restartPolicy="Never"),
        pod("restarts-one", containers=[container("c", **plain)], restartPolicy="Never"),
        pod("of-init", initContainers=[container("i", **restarts)], restartPolicy="Never"),
        pod("host-users", hostNetwork=True, hostUsers=False),
        pod("on-one", containers=[container("c", **restarts)], nodeSelector={"kubernetes.io/hostname": "n0"}),
        pod("of-two", containers=[container("c"), container("d", **restarts)]),
    ]
    return made


def _names(image: str) -> list[str]:
    tagged = image if ":" in image else f"{image}:latest"
    return [tagged, f"{image.partition(':')[0]}@sha256:{'0' * 64}"]
