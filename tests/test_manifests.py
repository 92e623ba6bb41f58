"""The manifests fit each other and the program."""

from pathlib import Path
from typing import Any

import yaml

from config.load import load
from config.scheduler import SchedulerConfiguration
from scheduler.kube.rights import NEEDED

FOLDER = Path(__file__).parent.parent / "deploy" / "manifests"
NAME, NAMESPACE = "gpushare-scheduler", "kube-system"


def documents() -> list[dict[str, Any]]:
    listed = yaml.safe_load((FOLDER / "kustomization.yaml").read_text())["resources"]
    return [found for name in listed for found in yaml.safe_load_all((FOLDER / name).read_text())]


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


def test_every_manifest_is_in_the_kustomization() -> None:
    listed = yaml.safe_load((FOLDER / "kustomization.yaml").read_text())["resources"]
    assert {*listed, "kustomization.yaml"} == {path.name for path in FOLDER.iterdir()}


def test_the_roles_grant_exactly_what_the_program_uses() -> None:
    needed = {
        (n.verb, f"{n.resource}/{n.subresource}" if n.subresource else n.resource, n.group, n.namespace) for n in NEEDED
    }
    cluster = {(*right, "") for right in granted(one("ClusterRole"))}
    local = {(*right, NAMESPACE) for right in granted(one("Role"))}
    assert cluster | local == needed


def test_roles_are_bound_to_the_account_that_the_pod_runs_as() -> None:
    pod = one("Deployment")["spec"]["template"]["spec"]
    account = one("ServiceAccount")["metadata"]
    assert (account["name"], account["namespace"]) == (pod["serviceAccountName"], NAMESPACE)
    for kind in ("ClusterRoleBinding", "RoleBinding"):
        subjects = [{"kind": "ServiceAccount", "name": account["name"], "namespace": NAMESPACE}]
        assert one(kind)["subjects"] == subjects
        assert one(kind)["roleRef"]["name"] == NAME


def test_the_deployment_mounts_a_configuration_that_the_program_accepts(tmp_path: Path) -> None:
    (container,) = one("Deployment")["spec"]["template"]["spec"]["containers"]
    file = tmp_path / "scheduler.yaml"
    file.write_text(one("ConfigMap")["data"]["scheduler.yaml"])
    configuration = load(SchedulerConfiguration, file=file, environ={}, flags={}, env_prefix="GPUSHARE_SCHEDULER_")
    assert container["args"] == ["run", "--config", "/etc/gpushare/scheduler.yaml"]
    assert container["volumeMounts"][0]["mountPath"] == "/etc/gpushare"
    assert configuration.listen_address[1] == container["ports"][0]["containerPort"]


def test_two_schedulers_never_run_at_a_time() -> None:
    spec = one("Deployment")["spec"]
    assert (spec["replicas"], spec["strategy"]) == (1, {"type": "Recreate"})


def test_the_pod_has_no_privileges() -> None:
    spec = one("Deployment")["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
