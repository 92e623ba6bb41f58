"""The device plugin's manifests and the admission policies fit each other, the program and the names on the wire."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from config.protocol import names
from config.settings.deviceplugin import ENV_PREFIX, DevicePluginConfiguration
from config.settings.load import load
from tests.support.repository import ROOT

DEPLOY = ROOT / "deploy"
NAME, NAMESPACE = "gpushare-scheduler-device-plugin", "kube-system"
ACCOUNT = f"system:serviceaccount:{NAMESPACE}:{NAME}"
RBAC = "manifests/device-plugin-rbac.yaml"
POLICIES = "manifests/admission-policies.yaml"
SCHEDULER_NAME = "manifests/scheduler-name-policy.yaml"


def documents(file: str, kind: str = "") -> list[dict[str, Any]]:
    found = yaml.safe_load_all((DEPLOY / file).read_text(encoding="utf-8"))
    return [document for document in found if kind in {"", document["kind"]}]


def one(file: str, kind: str) -> dict[str, Any]:
    (found,) = documents(file, kind)
    return found


def pod() -> dict[str, Any]:
    spec: dict[str, Any] = one("manifests/device-plugin-daemonset.yaml", "DaemonSet")["spec"]["template"]["spec"]
    return spec


def container() -> dict[str, Any]:
    (found,) = pod()["containers"]
    assert isinstance(found, dict)
    return found


def keys_of(file: str, name: str, variable: str) -> set[str]:
    """Strings in a variable of a policy."""
    (found,) = (one for one in policy(name, file)["variables"] if one["name"] == variable)
    return set(re.findall(r'"([^"]+)"', found["expression"]))


def test_the_policies_list_every_annotation_that_a_pod_may_have() -> None:
    asked = names.POD_ANNOTATIONS - set(names.ALLOCATION_KEYS)
    assert keys_of(POLICIES, "gpushare-requests", "keys") == asked
    unknown = keys_of("optional/refuse-unknown-keys.yaml", "gpushare-unknown-keys", "annotations")
    assert {key for key in names.POD_ANNOTATIONS if key.startswith(("gpushare/", "aliyun.com/gpu-"))} == unknown


def granted(file: str) -> set[str]:
    return {
        f"{verb} {resource}"
        for rule in one(file, "ClusterRole")["rules"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def policy(name: str, file: str = POLICIES) -> dict[str, Any]:
    (found,) = (d for d in documents(file, "ValidatingAdmissionPolicy") if d["metadata"]["name"] == name)
    spec: dict[str, Any] = found["spec"]
    return spec


def variable(spec: dict[str, Any], name: str) -> str:
    (expression,) = (v["expression"] for v in spec["variables"] if v["name"] == name)
    return str(expression)


def quoted(expression: str) -> list[str]:
    """The strings of an expression, less its comments."""
    return re.findall(r'"([^"]*)"', re.sub(r"^\s*//.*$", "", expression, flags=re.MULTILINE))


def configuration() -> DevicePluginConfiguration:
    """As the program reads it in the container."""
    environ = {variable["name"]: variable.get("value", "a-node") for variable in container()["env"]}
    flags = {"nodeName": environ["NODE_NAME"]}
    return load(DevicePluginConfiguration, file=None, environ=environ, flags=flags, env_prefix=ENV_PREFIX)


@pytest.mark.parametrize(
    ("file", "rights"),
    [
        pytest.param(
            RBAC,
            {"list pods", "watch pods", "get nodes", "list nodes", "watch nodes"}
            | {"patch nodes", "patch nodes/status", "create events"},
            id="by default",
        ),
        pytest.param("optional/device-plugin-evict.yaml", {"create pods/eviction"}, id="to evict"),
        pytest.param("optional/device-plugin-mark-assigned.yaml", {"patch pods"}, id="to mark"),
    ],
)
def test_the_account_of_the_plugin_may_do_this_and_nothing_else(file: str, rights: set[str]) -> None:
    binding = one(file, "ClusterRoleBinding")

    assert granted(file) == rights
    assert binding["roleRef"]["name"] == one(file, "ClusterRole")["metadata"]["name"]
    assert binding["subjects"] == [{"kind": "ServiceAccount", "name": NAME, "namespace": NAMESPACE}]


def test_the_pod_runs_as_the_account_that_is_there() -> None:
    account = one(RBAC, "ServiceAccount")["metadata"]
    assert (account["name"], account["namespace"]) == (NAME, NAMESPACE)
    assert pod()["serviceAccountName"] == NAME


def test_the_legacy_plugin_and_ours_can_be_installed_side_by_side() -> None:
    ours = {document["metadata"]["name"] for document in documents(RBAC)}
    assert ours.isdisjoint({"gpushare-device-plugin", "gpushare-device-plugin-ds", "gpushare-schd-extender"})


def test_the_doctor_asks_for_every_policy_that_is_installed() -> None:
    assert {d["metadata"]["name"] for d in documents(POLICIES, "ValidatingAdmissionPolicy")} == set(names.POLICIES)


def test_only_the_scheduler_is_a_writer_until_a_migration_begins() -> None:
    spec = policy("gpushare-allocation")

    assert quoted(variable(spec, "writers")) == [f"system:serviceaccount:{NAMESPACE}:gpushare-scheduler"]
    assert quoted(variable(spec, "exceptions")) == [ACCOUNT, names.MEM_ASSIGNED]


def test_the_policy_looks_at_every_way_to_write_a_pods_annotations() -> None:
    rules = policy("gpushare-allocation")["matchConstraints"]["resourceRules"]

    assert {operation: set(rule["resources"]) for rule in rules for operation in rule["operations"]} == {
        "CREATE": {"pods", "pods/binding", "bindings"},
        "UPDATE": {"pods", "pods/status", "pods/resize", "pods/ephemeralcontainers"},
    }


def test_on_a_node_the_plugin_writes_what_is_ours() -> None:
    spec = policy("gpushare-device-plugin-nodes")

    assert quoted(variable(spec, "annotations")) == [
        names.INVENTORY,
        names.CORDON,
        names.CLEAR_HEALTH,
        names.RELEASE,
        names.HELD_UNTIL,
    ]
    assert quoted(variable(spec, "resources")) == [names.GPU_COUNT, names.GPU_CORE]


@pytest.mark.parametrize(
    "file",
    [
        POLICIES,
        SCHEDULER_NAME,
        "optional/limit-volume-writes.yaml",
        "optional/refuse-unknown-keys.yaml",
        "optional/refuse-visible-devices.yaml",
    ],
)
def test_every_policy_is_bound_and_refuses_when_it_cannot_evaluate(file: str) -> None:
    policies = documents(file, "ValidatingAdmissionPolicy")
    bound = {document["spec"]["policyName"] for document in documents(file, "ValidatingAdmissionPolicyBinding")}

    assert bound == {document["metadata"]["name"] for document in policies}
    assert {document["spec"]["failurePolicy"] for document in policies} == {"Fail"}
    assert all(d["spec"]["validationActions"] == ["Deny"] for d in documents(file, "ValidatingAdmissionPolicyBinding"))


def test_the_pod_has_no_capability_and_no_more_of_the_node_than_it_needs() -> None:
    spec = pod()

    assert container()["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert spec["securityContext"] == {
        "runAsUser": 0,
        "runAsGroup": 0,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    assert "hostNetwork" not in spec
    assert "hostIPC" not in spec


def test_the_pod_runs_on_every_gpu_node_and_stays() -> None:
    spec = pod()

    assert spec["nodeSelector"] == {"gpushare": "true"}
    assert spec["tolerations"] == [{"operator": "Exists"}]
    assert spec["priorityClassName"] == "system-node-critical"


def test_two_instances_never_run_on_one_node() -> None:
    rolling = one("manifests/device-plugin-daemonset.yaml", "DaemonSet")["spec"]["updateStrategy"]["rollingUpdate"]
    assert rolling == {"maxSurge": 0, "maxUnavailable": 3}


def test_the_probes_ask_where_the_program_listens() -> None:
    (port,) = container()["ports"]

    assert port["containerPort"] == configuration().listen_address[1]
    for probe, path in (("livenessProbe", "/healthz"), ("readinessProbe", "/readyz")):
        assert container()[probe]["httpGet"] == {"path": path, "port": port["name"]}


def test_the_daemon_set_starts_the_program_of_the_schedulers_image() -> None:
    (scheduler,) = one("manifests/deployment.yaml", "Deployment")["spec"]["template"]["spec"]["containers"]
    entry = re.search(
        r'^ENTRYPOINT \["(\S+)"\]$', (DEPLOY / "images/Dockerfile").read_text(encoding="utf-8"), re.MULTILINE
    )

    assert container()["image"] == scheduler["image"]
    assert entry is not None
    assert container()["command"] == [str(Path(entry[1]).with_name("gpushare-device-plugin")), "run"]


def test_what_is_optional_is_not_installed_by_default() -> None:
    listed = yaml.safe_load((DEPLOY / "manifests/kustomization.yaml").read_text(encoding="utf-8"))["resources"]
    assert {path.name for path in (DEPLOY / "optional").iterdir()}.isdisjoint(listed)
