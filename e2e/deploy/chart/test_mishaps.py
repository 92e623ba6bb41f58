"""What goes wrong between helm, kubectl and a real API server, and that the way out of it is there."""

import re
import subprocess
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from e2e.control_plane import binaries
from e2e.control_plane.admin import Admin, Json, done, seen
from e2e.control_plane.cluster import ControlPlane
from e2e.deploy.chart.cluster_state import everything, until
from e2e.deploy.chart.helm import CHART, NAMESPACE, RELEASE, SET_IMAGE, Helm, HelmRefused
from e2e.deploy.chart.variants import VARIANTS
from e2e.deploy.operations.migrating_cluster import desired
from e2e.deploy.operations.terminal import Terminal, blocks
from e2e.programs import manifests
from e2e.support.gpu_site import NODES, gpu_node
from tests.support.repository import ROOT

IN: Final = ("--namespace", NAMESPACE)
INSTALL: Final = ("install", RELEASE, str(CHART), *SET_IMAGE)
UPGRADE: Final = ("upgrade", RELEASE, str(CHART), *SET_IMAGE, *IN)
APPS: Final = f"/apis/apps/v1/namespaces/{NAMESPACE}"
# The chart lets it pass, and the API server does not.
MORE_THAN_THE_LIMIT: Final = {"scheduler": {"resources": {"requests": {"memory": "4Gi"}}}}
SAID_OF_THE_LIMIT: Final = "must be less than or equal to memory limit"
OF_CONTROLLERS: Final = frozenset(
    {"pods", "replicasets", "controllerrevisions", "endpoints", "endpointslices", "leases"}
)
README: Final = ROOT / "deploy" / "README.md"
LABELLED: Final = {"gpushare": "true"}
_WITHIN_S: Final = 60.0

Name = tuple[str, str, str]


@pytest.fixture
async def before(helm_there: Helm, operator: Admin) -> AsyncIterator[set[Name]]:
    """What is there without us; a release is gone afterwards, and whatever else is left fails the test."""
    found = await everything(operator)
    yield found
    for release in yaml.safe_load(helm_there("list", "--all-namespaces", "--output", "json")):
        helm_there("uninstall", release["name"], "--namespace", release["namespace"])

    async def left() -> set[Name]:
        return await everything(operator) - found

    await until(left, set())


@asynccontextmanager
async def a_node(operator: Admin, labels: Mapping[str, str], **annotations: str) -> AsyncIterator[None]:
    """Node `n` while the context lasts, with these labels; no kubelet is there."""
    metadata = {"name": "n", "labels": labels, "annotations": annotations}
    await operator.create(NODES, {**gpu_node("n", [1]), "metadata": metadata})
    try:
        yield
    finally:
        await operator.delete(f"{NODES}/n")


async def written(operator: Admin) -> set[Name]:
    """What is there of helm's and kubectl's: controllers make the rest of it when their turn comes."""
    return {each for each in await everything(operator) if each[0] not in OF_CONTROLLERS}


async def specification(operator: Admin, name: str = manifests.SCHEDULER) -> Any:  # noqa: ANN401 - JSON
    return done(await operator.get(f"{APPS}/deployments/{name}")).body["spec"]


@pytest.mark.parametrize("rolls_back", [True, False], ids=["taken back", "left as it is"])
async def test_an_upgrade_that_the_api_server_refuses_can_be_taken_back_and_need_not_be_before_the_next(
    before: set[Name], helm_there: Helm, operator: Admin, *, rolls_back: bool
) -> None:
    del before
    helm_there(*INSTALL, *IN)
    first = await specification(operator)
    with pytest.raises(HelmRefused, match=SAID_OF_THE_LIMIT):
        helm_there(*UPGRADE, values=MORE_THAN_THE_LIMIT)
    if rolls_back:
        helm_there("rollback", RELEASE, "1", *IN)
        assert await specification(operator) == first
    helm_there(*UPGRADE, values={"scheduler": {"replicas": 3}})
    assert (await specification(operator))["replicas"] == 3


async def test_an_installation_that_the_api_server_refuses_is_removed_as_any_other(
    before: set[Name], helm_there: Helm, operator: Admin
) -> None:
    with pytest.raises(HelmRefused, match=SAID_OF_THE_LIMIT):
        helm_there(*INSTALL, *IN, values=MORE_THAN_THE_LIMIT)
    assert await everything(operator) > before
    helm_there("uninstall", RELEASE, *IN)
    helm_there(*INSTALL, *IN)
    assert (await specification(operator))["replicas"] == 2


async def test_other_names_take_the_place_of_the_first(before: set[Name], helm_there: Helm, operator: Admin) -> None:
    """What cannot be changed of an object has another name with it: selectors, the role of a binding."""
    helm_there(*INSTALL, *IN)
    helm_there(*UPGRADE, values=VARIANTS["other names"])
    ours = {each for each in await everything(operator) - before if manifests.SCHEDULER in each[2]}

    assert await specification(operator, "shared-gpus")
    assert {
        each for each in ours if each[0] in {"deployments", "daemonsets", "clusterroles", "serviceaccounts"}
    } == set()


SECOND: Final = ("install", "another", str(CHART), *SET_IMAGE, "--namespace", "default")


@pytest.mark.parametrize(
    ("variant", "kind"),
    [
        pytest.param("default", "", id="of the same names"),
        pytest.param("other names", "ValidatingAdmissionPolicy .* ", id="of other names"),
    ],
)
async def test_a_second_release_is_refused_and_changes_nothing(
    before: set[Name], helm_there: Helm, operator: Admin, variant: str, kind: str
) -> None:
    del before
    helm_there(*INSTALL, *IN)
    first = await written(operator)
    with pytest.raises(HelmRefused, match=f"{kind}cannot be imported into the current release"):
        helm_there(*SECOND, values=VARIANTS[variant])
    assert await written(operator) == first


async def test_a_second_release_of_other_names_without_policies_competes_for_the_same_lease(
    before: set[Name], helm_there: Helm, operator: Admin
) -> None:
    del before
    helm_there(*INSTALL, *IN)
    # Helm cannot tell. What then holds it off: the Lease, the lock on each node, the policies of the first.
    helm_there(*SECOND, values={**VARIANTS["other names"], "admissionPolicies": {"enabled": False}})
    path = "/apis/rbac.authorization.k8s.io/v1/namespaces/kube-system/roles"
    roles = {one["metadata"]["name"]: one["rules"] for one in await operator.items(path)}
    assert lease_of(roles["shared-gpus"]) == lease_of(roles[manifests.SCHEDULER])


def lease_of(rules: list[Json]) -> list[str]:
    """The Lease that a Role lets its account renew."""
    (named,) = (rule["resourceNames"] for rule in rules if rule["resources"] == ["leases"] and "resourceNames" in rule)
    return list(named)


async def test_the_election_is_switched_off_and_on(before: set[Name], helm_there: Helm, operator: Admin) -> None:
    """It changes how the Deployment is rolled out, of which the API server takes one way at a time."""
    del before
    alone = {"scheduler": {"replicas": 1, "config": {"leaderElection": {"leaderElect": False}}}}
    helm_there(*INSTALL, *IN)
    helm_there(*UPGRADE, values=alone)
    assert (await specification(operator))["strategy"] == {"type": "Recreate"}
    # Without any values helm would take those of the last release again.
    helm_there(*UPGRADE, "--reset-values")
    assert (await specification(operator))["strategy"]["type"] == "RollingUpdate"


async def test_monitors_without_the_prometheus_operator_make_nothing(
    before: set[Name], helm_there: Helm, operator: Admin
) -> None:
    # Kinds that no server has: those of the operator may be on this one, by another test.
    with pytest.raises(HelmRefused, match="ensure CRDs are installed first"), ControlPlane() as bare:
        chart_on(bare, helm_there)(*INSTALL, *IN, values={"podMonitor": {"enabled": True}})
    assert await everything(operator) == before


def chart_on(cluster: ControlPlane, helm: Helm) -> Helm:
    return Helm(helm.program, helm.home, cluster.kubeconfig_path())


def apply_by_kubectl(helm: Helm) -> None:
    kubectl = [str(binaries.ensure(["kubectl"])["kubectl"]), "--kubeconfig", str(helm.kubeconfig)]
    subprocess.run([*kubectl, "apply", "-k", str(manifests.FOLDER)], capture_output=True, check=True)


async def test_what_kubectl_has_applied_is_not_taken_over_unless_helm_is_told_to(
    before: set[Name], helm_there: Helm, operator: Admin
) -> None:
    apply_by_kubectl(helm_there)
    applied = await written(operator)
    with pytest.raises(HelmRefused, match="cannot be imported into the current release"):
        helm_there(*INSTALL, *IN)
    assert await written(operator) == applied
    helm_there(*INSTALL, *IN, "--take-ownership", "--force-conflicts")
    assert {each for each in await written(operator) if each[0] != "secrets"} == applied
    assert applied > {each for each in before if each[0] not in OF_CONTROLLERS}


async def test_a_namespace_of_restricted_pods_takes_the_scheduler_and_refuses_the_device_plugin(
    place: str, before: set[Name], helm_there: Helm, operator: Admin
) -> None:
    del before
    level = {"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "restricted"}}}
    done(await operator.patch(f"/api/v1/namespaces/{place}", level))
    async with a_node(operator, LABELLED):
        helm_there(*INSTALL, "--namespace", place)
        of_ours = {"fieldSelector": f"involvedObject.name={manifests.PLUGIN},reason=FailedCreate"}
        refused = await seen(
            operator, f"/api/v1/namespaces/{place}/events", lambda _: True, of_ours, within_s=_WITHIN_S
        )

        async def pods() -> int:
            return len(await operator.items(f"/api/v1/namespaces/{place}/pods"))

        await until(pods, 2)
    assert "violates PodSecurity" in refused["message"]


async def test_a_node_that_is_down_keeps_nobody_from_uninstalling_and_installing_again(
    before: set[Name], helm_there: Helm, operator: Admin
) -> None:
    """Its device plugin's pod is ended by its kubelet alone; the node's removal is what else ends it."""
    del before
    pods = f"/api/v1/namespaces/{NAMESPACE}/pods"
    query = {"labelSelector": f"app.kubernetes.io/name={manifests.PLUGIN}"}
    async with a_node(operator, LABELLED):
        helm_there(*INSTALL, *IN)
        first = await seen(operator, pods, lambda _: True, query, within_s=_WITHIN_S)
        await onto(operator, first)
        helm_there("uninstall", RELEASE, *IN)
        ending = await seen(
            operator, pods, lambda pod: "deletionTimestamp" in pod["metadata"], query, within_s=_WITHIN_S
        )
        helm_there(*INSTALL, *IN)
        second = await seen(operator, pods, lambda pod: is_another(pod, ending), query, within_s=_WITHIN_S)
    await operator.delete(pods, {"gracePeriodSeconds": 0}, query)
    assert ending["metadata"]["uid"] == first["metadata"]["uid"]
    assert "deletionTimestamp" not in second["metadata"]


async def test_what_the_document_removes_is_gone(
    before: set[Name], helm_there: Helm, operator: Admin, controlled: ControlPlane, tmp_path: Path
) -> None:
    del before
    ours = {"gpushare/inventory": "{}", "gpushare/held-until": "2026-11-23T00:00:00Z"}
    leases = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases"
    async with a_node(operator, LABELLED | {"pool": "a"}, **ours):
        helm_there(*INSTALL, *IN)
        await operator.create(leases, {"metadata": {"name": manifests.SCHEDULER}})
        terminal = Terminal(controlled, tmp_path)
        by_helm, _ = blocks("### Remove it", README)
        # Of the pods nothing runs here: e2e/suites/node/test_uninstall.py has a kubelet.
        upgrade, uninstall, rest = by_helm.partition("helm uninstall")
        terminal.types(upgrade)
        plugin = done(await operator.get(f"{APPS}/daemonsets/{manifests.PLUGIN}")).body["spec"]
        terminal.types(uninstall + rest)
        (by_hand,) = re.findall(r"`(kubectl annotate nodes [^`]+)`", README.read_text(encoding="utf-8"))
        terminal.types(by_hand)
        node = done(await operator.get(f"{NODES}/n")).body["metadata"]
    assert "gpushare" not in node["labels"]
    assert node["labels"]["pool"] == "a"
    assert not {*ours} & {*node.get("annotations", {})}
    (container,) = plugin["template"]["spec"]["containers"]
    assert container["command"][1:] == ["uninstall", "--wait", "--stay"]
    assert plugin["updateStrategy"]["rollingUpdate"]["maxUnavailable"] == "100%"


async def test_a_node_leaves_the_daemon_set_and_a_pod_of_the_same_kind_cleans_it(
    before: set[Name], helm_there: Helm, operator: Admin, controlled: ControlPlane, tmp_path: Path
) -> None:
    """Here no kubelet runs the pod: e2e/suites/node/test_uninstall.py has one."""
    del before
    pods, found = f"/api/v1/namespaces/{NAMESPACE}/pods", "nvidia.com/gpu.present"
    query = {"labelSelector": f"app.kubernetes.io/name={manifests.PLUGIN}"}
    terminal = Terminal(controlled, tmp_path)
    given, again = blocks("### Give one node back", README)
    async with a_node(operator, LABELLED | {found: "true"}):
        for select in ("gpushare-label", "nfd-labels"):
            helm_there("upgrade", "--install", *INSTALL[1:], *IN, "--set", f"devicePlugin.selectNodesBy={select}")
            await until(lambda: desired(operator, manifests.PLUGIN), (1, True))
            bound = await seen(operator, pods, is_not_ending, query, within_s=_WITHIN_S)
            await onto(operator, bound)
            leave, wait, rest = given.partition("kubectl -n kube-system wait pod -l")
            terminal.types(leave, NODE="n")
            await until(lambda: desired(operator, manifests.PLUGIN), (0, True))
            # As its kubelet would, in the end.
            done(await operator.delete(f"{pods}/{bound['metadata']['name']}", {"gracePeriodSeconds": 0}))
            terminal.types(wait + rest.partition("kubectl -n kube-system wait pod gpushare-uninstall")[0], NODE="n")
            plugin = done(await operator.get(f"{APPS}/daemonsets/{manifests.PLUGIN}")).body["spec"]["template"]["spec"]
            once = done(await operator.get(f"{pods}/gpushare-uninstall")).body["spec"]
            await operator.delete(f"{pods}/gpushare-uninstall", {"gracePeriodSeconds": 0})
            terminal.types(again.splitlines()[0], NODE="n")
            await until(lambda: desired(operator, manifests.PLUGIN), (1, True))
            assert_same_means(once, plugin)


def assert_same_means(once: Json, plugin: Json) -> None:
    """Of the one-shot pod and the DaemonSet's: the account, the image, the configuration and the node's directories."""
    (removes,), (runs,) = once["containers"], plugin["containers"]
    mounted = {mount["name"]: mount for mount in removes["volumeMounts"]}
    assert removes["command"] == [runs["command"][0], "uninstall", "--wait"]
    assert (once["nodeName"], once["restartPolicy"]) == ("n", "Never")
    assert [removes["image"], removes["env"]] == [runs["image"], runs["env"]]
    assert [once[name] for name in ("serviceAccountName", "hostPID")] == [plugin["serviceAccountName"], True]
    assert [mounted[mount["name"]] for mount in runs["volumeMounts"]] == runs["volumeMounts"]
    assert [each for each in once["volumes"] if each in plugin["volumes"]] == plugin["volumes"]


def is_not_ending(pod: Json) -> bool:
    return "deletionTimestamp" not in pod["metadata"]


def is_another(pod: Json, other: Json) -> bool:
    return bool(pod["metadata"]["uid"] != other["metadata"]["uid"])


async def onto(operator: Admin, pod: Json) -> None:
    """As kube-scheduler binds the pod of a DaemonSet; no kubelet is there."""
    name = pod["metadata"]["name"]
    target = {"apiVersion": "v1", "kind": "Node", "name": "n"}
    path = f"/api/v1/namespaces/{NAMESPACE}/pods/{name}/binding"
    answer = await operator.post(path, {"metadata": {"name": name}, "target": target})
    assert answer.status == HTTPStatus.CREATED, answer.body
