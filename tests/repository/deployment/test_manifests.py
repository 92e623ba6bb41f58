"""The scheduler's manifests fit each other and the program; those of its page; the manifest for krew."""

import re
import tomllib
from http import HTTPStatus
from pathlib import Path
from typing import Any

import aiohttp
import yaml

from config.settings.load import load
from config.settings.scheduler import SchedulerConfiguration, configuration_model
from scheduler.kube.rest.reviews import NEEDED, of_lease
from scheduler.metrics.metrics import Metrics
from scheduler.plugins.registry import describe
from scheduler.process.probes import serve
from tests.support.builders import cluster
from tests.support.repository import ROOT

FOLDER = ROOT / "deploy" / "manifests"
NAME, NAMESPACE = "gpushare-scheduler", "kube-system"


# tests/repository/deployment/test_device_plugin_manifests.py looks at these.
OF_THE_NODE = ("device-plugin-", "admission-", "scheduler-name-")


def documents() -> list[dict[str, Any]]:
    """The scheduler's."""
    listed = yaml.safe_load((FOLDER / "kustomization.yaml").read_text())["resources"]
    ours = [name for name in listed if not name.startswith(OF_THE_NODE)]
    return [found for name in ours for found in yaml.safe_load_all((FOLDER / name).read_text())]


def one(kind: str) -> dict[str, Any]:
    (found,) = (document for document in documents() if document["kind"] == kind)
    return found


def granted(role: dict[str, Any]) -> set[tuple[str, str, str]]:
    """(verb, resource with subresource, group)."""
    return {
        (verb, resource, group)
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def shipped(folder: Path) -> SchedulerConfiguration:
    """What the manifests configure."""
    file = folder / "scheduler.yaml"
    file.write_text(one("ConfigMap")["data"]["scheduler.yaml"])
    return load(configuration_model(describe()), file=file, environ={}, flags={}, env_prefix="GPUSHARE_SCHEDULER_")


def test_the_roles_grant_exactly_what_the_program_uses() -> None:
    needed = {
        (n.verb, f"{n.resource}/{n.subresource}" if n.subresource else n.resource, n.group, n.namespace) for n in NEEDED
    }
    cluster = {(*right, "") for right in granted(one("ClusterRole"))}
    local = {(*right, NAMESPACE) for right in granted(one("Role"))}
    lease = {(n.verb, n.resource, n.group, n.namespace) for n in of_lease(NAMESPACE, NAME)}
    assert cluster | local == needed | lease
    assert [rule.get("resourceNames") for rule in one("Role")["rules"]] == [None, None, [NAME]]


def test_roles_are_bound_to_the_account_that_the_pod_runs_as() -> None:
    pod = one("Deployment")["spec"]["template"]["spec"]
    account = one("ServiceAccount")["metadata"]
    assert (account["name"], account["namespace"]) == (pod["serviceAccountName"], NAMESPACE)
    for kind in ("ClusterRoleBinding", "RoleBinding"):
        subjects = [{"kind": "ServiceAccount", "name": account["name"], "namespace": NAMESPACE}]
        assert one(kind)["subjects"] == subjects
        assert one(kind)["roleRef"]["name"] == NAME


def test_the_deployment_mounts_a_configuration_that_the_program_accepts(tmp_path: Path) -> None:
    spec = one("Deployment")["spec"]
    pod = spec["template"]["spec"]
    (container,), (volume,) = pod["containers"], pod["volumes"]
    (mount,) = container["volumeMounts"]
    assert container["args"] == ["run", "--config", "/etc/gpushare/scheduler.yaml"]
    assert mount == {"name": volume["name"], "mountPath": "/etc/gpushare", "readOnly": True}
    assert volume["configMap"]["name"] == one("ConfigMap")["metadata"]["name"]
    assert shipped(tmp_path).listen_address[1] == container["ports"][0]["containerPort"]
    assert spec["selector"]["matchLabels"].items() <= spec["template"]["metadata"]["labels"].items()


def test_a_second_replica_stands_by_and_leaders_are_elected(tmp_path: Path) -> None:
    assert one("Deployment")["spec"]["replicas"] == 2
    assert shipped(tmp_path).leader_election.leader_elect


def test_one_replica_stays_while_nodes_are_drained() -> None:
    budget, deployment = one("PodDisruptionBudget")["spec"], one("Deployment")["spec"]
    assert budget == {"maxUnavailable": 1, "selector": deployment["selector"]}


def test_whatever_has_a_namespace_is_in_that_of_the_account() -> None:
    cluster_wide = {"ClusterRole", "ClusterRoleBinding", "FlowSchema"}
    spaced = [document for document in documents() if document["kind"] not in cluster_wide]
    assert {document["metadata"]["namespace"] for document in spaced} == {NAMESPACE}
    assert all("namespace" not in document["metadata"] for document in documents() if document not in spaced)


async def test_the_probes_ask_for_what_the_program_serves() -> None:
    (container,) = one("Deployment")["spec"]["template"]["spec"]["containers"]
    runner = await serve(("127.0.0.1", 0), Metrics(cluster(), dict, per_card=False).scrape, ready=str, alive=str)
    async with aiohttp.ClientSession(f"http://127.0.0.1:{runner.addresses[0][1]}") as session:
        for probe in ("livenessProbe", "readinessProbe"):
            asked = container[probe]["httpGet"]
            assert asked["port"] in {port["name"] for port in container["ports"]}
            async with session.get(asked["path"]) as answer:
                assert answer.status == HTTPStatus.OK
    await runner.cleanup()


def test_the_api_server_hears_the_account_before_the_workloads() -> None:
    schemas = [document for document in documents() if document["kind"] == "FlowSchema"]
    accounts = [rule["subjects"] for document in schemas for rule in document["spec"]["rules"]]
    levels = {
        document["metadata"]["name"]: document["spec"]["priorityLevelConfiguration"]["name"] for document in schemas
    }
    precedence = [document["spec"]["matchingPrecedence"] for document in schemas]
    account = {"kind": "ServiceAccount", "serviceAccount": {"name": NAME, "namespace": NAMESPACE}}
    assert accounts == [[account]] * len(schemas)
    assert levels == {"gpushare-scheduler-leases": "leader-election", "gpushare-scheduler": "workload-high"}
    # 9000: kube-apiserver's own schema for service accounts, which leads into workload-low.
    assert precedence == sorted(precedence)
    assert precedence[-1] < 9000


def test_the_image_is_made_of_what_is_here_and_starts_the_program() -> None:
    dockerfile = (ROOT / "deploy/images/Dockerfile").read_text(encoding="utf-8")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    copied = {word for line in re.findall(r"^COPY (?!--)(.+) \S+$", dockerfile, re.MULTILINE) for word in line.split()}
    packages = {pattern.rstrip("*") for pattern in project["tool"]["setuptools"]["packages"]["find"]["include"]}
    (program,) = re.findall(r'^ENTRYPOINT \["\S+/(\S+)"\]$', dockerfile, re.MULTILINE)
    assert all((ROOT / name).exists() for name in copied)
    assert packages | {"pyproject.toml", "requirements"} <= copied
    assert program in project["project"]["scripts"]
    assert "USER 65532:65532" in dockerfile
    assert f"ARG VERSION={project['project']['version']}\n" in dockerfile
    pod = one("Deployment")["spec"]["template"]["spec"]
    assert (pod["securityContext"]["runAsUser"], pod["securityContext"]["runAsGroup"]) == (65532, 65532)


def of_the_page() -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((ROOT / "deploy/optional/page.yaml").read_text()))


def test_the_page_may_read_what_its_answers_need_and_write_nothing() -> None:
    rights = {right for one in of_the_page() if "rules" in one for right in granted(one)}
    read = {(right.verb, right.resource, right.group) for right in NEEDED if right.verb in {"get", "list", "watch"}}
    assert rights == read | {(verb, "priorityclasses", "scheduling.k8s.io") for verb in ("list", "watch")}


def test_the_manifest_for_krew_has_what_krew_requires() -> None:
    document = yaml.safe_load((ROOT / "deploy/krew/gpushare.yaml").read_text(encoding="utf-8"))
    assert document["metadata"]["name"] == "gpushare"
    spec = document["spec"]
    assert re.fullmatch(r"v\d+\.\d+\.\d+(-[a-z]+\.\d+)?", spec["version"])
    assert len(spec["shortDescription"]) <= 50
    assert len({tuple(one["selector"]["matchLabels"].values()) for one in spec["platforms"]}) == 4
    assert all(re.fullmatch("[0-9a-f]{64}", one["sha256"]) for one in spec["platforms"])
    assert {one["bin"] for one in spec["platforms"]} == {"kubectl-gpushare"}
