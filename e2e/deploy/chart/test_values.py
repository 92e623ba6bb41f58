"""A value is where it belongs, and the programs accept what comes of it; `test_refused_values` has the wrong ones."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from config.settings.deviceplugin import ENV_PREFIX, DevicePluginConfiguration
from config.settings.isolation import IsolationMechanism
from config.settings.load import load
from config.settings.scheduler import SchedulerConfiguration, configuration_model, resolve
from e2e.deploy.chart.helm import Helm
from e2e.deploy.chart.variants import VARIANTS, parameters
from scheduler.app import rights_needed
from scheduler.plugins.registry import describe
from scheduler.tools.cli.target import MOUNTED

OTHER: Final = VARIANTS["another configuration"]
# What the NVIDIA runtime reads, and the node's name, which is one of the settings under another name.
NO_SETTINGS: Final = ("NVIDIA_", "NODE_NAME")
_VOLUME_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


def one(documents: list[dict[str, Any]], kind: str, name: str = "") -> dict[str, Any]:
    (found,) = (each for each in documents if each["kind"] == kind and each["metadata"]["name"].startswith(name))
    return found


def pod_of(workload: dict[str, Any]) -> dict[str, Any]:
    spec: dict[str, Any] = workload["spec"]["template"]["spec"]
    return spec


def scheduler_pod(documents: list[dict[str, Any]]) -> dict[str, Any]:
    pods = (pod_of(each) for each in documents if each["kind"] == "Deployment")
    (found,) = (pod for pod in pods if pod["containers"][0]["name"] == "scheduler")
    return found


def scheduler_of(documents: list[dict[str, Any]], folder: Path) -> SchedulerConfiguration:
    """What the scheduler reads in its container."""
    (name,) = (each["configMap"]["name"] for each in scheduler_pod(documents)["volumes"] if "configMap" in each)
    (found,) = (each for each in documents if each["kind"] == "ConfigMap" and each["metadata"]["name"] == name)
    (folder / "scheduler.yaml").write_text(found["data"]["scheduler.yaml"], encoding="utf-8")
    model = configuration_model(describe())
    return load(model, file=folder / "scheduler.yaml", environ={}, flags={}, env_prefix="GPUSHARE_SCHEDULER_")


def plugin_of(documents: list[dict[str, Any]], folder: Path) -> DevicePluginConfiguration:
    """What the device plugin reads in its container, from its file and its environment."""
    pod = pod_of(one(documents, "DaemonSet"))
    (container,) = pod["containers"]
    environ = {
        each["name"]: each.get("value", "a-node")
        for each in container["env"]
        if not each["name"].startswith(NO_SETTINGS)
    }
    names = [volume["configMap"]["name"] for volume in pod["volumes"] if "configMap" in volume]
    assert bool(names) is ("args" in container)
    file = None
    for found in documents:
        if found["kind"] == "ConfigMap" and found["metadata"]["name"] in names:
            file = folder / "device-plugin.yaml"
            file.write_text(found["data"]["device-plugin.yaml"], encoding="utf-8")
    assert bool(names) is (file is not None)
    flags = {"nodeName": "a-node"}
    return load(DevicePluginConfiguration, file=file, environ=environ, flags=flags, env_prefix=ENV_PREFIX)


@pytest.mark.parametrize("values", parameters())
def test_the_programs_accept_the_configuration_and_share_what_they_have_to(
    helm: Helm, values: Mapping[str, Any], tmp_path: Path
) -> None:
    documents = helm.objects(values)
    scheduler = scheduler_of(documents, tmp_path)
    (container,) = scheduler_pod(documents)["containers"]

    assert container["ports"][0]["containerPort"] == scheduler.listen_address[1]
    if any(document["kind"] == "DaemonSet" for document in documents):
        plugin = plugin_of(documents, tmp_path)
        (container,) = pod_of(one(documents, "DaemonSet"))["containers"]
        assert container["ports"][0]["containerPort"] == plugin.listen_address[1]
        assert (plugin.memory_unit_mib, plugin.resources) == (scheduler.memory_unit_mib, scheduler.resources)


SECURED: Final = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
}
PRIVILEGED: Final = {"privileged": True, "readOnlyRootFilesystem": True}


def has_mps(values: Mapping[str, Any]) -> bool:
    plugin = values.get("devicePlugin", {})
    config, preparation = plugin.get("config", {}), plugin.get("isolationMechanism", {}).get("preparation")
    fallback = config.get("isolationFallback") if config.get("isolation", "auto") == "auto" else ""
    return "mps" in {config.get("isolation"), fallback, preparation}


def plugin_security(values: Mapping[str, Any]) -> dict[str, Any]:
    """Security context of the device plugin's container."""
    plugin = values.get("devicePlugin", {})
    privileged = has_mps(values) or plugin.get("driverAccess") in {"privileged", "driver-root"}
    options = {"seLinuxOptions": plugin["seLinuxOptions"]} if "seLinuxOptions" in plugin else {}
    return (PRIVILEGED if privileged else SECURED) | options


@pytest.mark.parametrize("values", parameters())
def test_the_pods_are_secured_whatever_the_values(helm: Helm, values: Mapping[str, Any]) -> None:
    documents = [each for each in helm.objects(values) if each["kind"] in {"Deployment", "DaemonSet"}]
    contexts = {
        each["kind"]: container["securityContext"]
        for each in documents
        for container in pod_of(each)["containers"]
        if container["name"] != "proxy"
    }

    assert contexts.pop("Deployment") == SECURED
    assert list(contexts.values()) in ([], [plugin_security(values)])
    assert scheduler_pod(documents)["securityContext"]["runAsNonRoot"]


@pytest.mark.parametrize("values", parameters())
def test_the_node_shares_its_memory_and_the_directory_of_mps_with_the_plugin_for_mps_alone(
    helm: Helm, values: Mapping[str, Any], tmp_path: Path
) -> None:
    documents = helm.objects(values)
    if not any(each["kind"] == "DaemonSet" for each in documents):
        return
    pod = pod_of(one(documents, "DaemonSet"))
    directory = plugin_of(documents, tmp_path).mps.directory
    mounts = {each["mountPath"] for each in pod["containers"][0]["volumeMounts"] if each["name"] == "mps"}
    paths = [each["hostPath"] for each in pod["volumes"] if each["name"] == "mps"]

    assert pod.get("hostIPC", False) is has_mps(values)
    assert mounts == ({directory} if has_mps(values) else set())
    assert paths == ([{"path": directory, "type": "DirectoryOrCreate"}] if has_mps(values) else [])


@pytest.mark.parametrize("values", parameters())
def test_every_folder_that_the_device_plugin_uses_is_mounted_as_it_uses_it(
    helm: Helm, values: Mapping[str, Any], tmp_path: Path
) -> None:
    documents = helm.objects(values)
    if not any(each["kind"] == "DaemonSet" for each in documents):
        return
    pod = pod_of(one(documents, "DaemonSet"))
    volumes = {each["name"]: each.get("hostPath", {}).get("path") for each in pod["volumes"]}
    mounts = {each["mountPath"]: each for each in pod["containers"][0]["volumeMounts"]}
    used = plugin_of(documents, tmp_path)
    written = {used.kubelet.device_plugin_dir, used.cdi_dir}
    if not Path(used.state_dir).is_relative_to(used.kubelet.device_plugin_dir):
        written.add(used.state_dir)
    read = {str(Path(used.kubelet.pod_resources_socket).parent), *used.cdi_spec_dirs} - written

    assert len(volumes) == len(pod["volumes"])
    assert (volumes[mounts[used.host_dev]["name"]], mounts[used.host_dev]["readOnly"]) == ("/dev", True)
    assert (volumes[mounts[used.host_cgroup]["name"]], mounts[used.host_cgroup]["readOnly"]) == ("/sys/fs/cgroup", True)
    assert [name for name in volumes if not _VOLUME_NAME.fullmatch(name)] == []
    for paths, read_only in ((written, False), (read, True)):
        found = {path: (volumes[mounts[path]["name"]], mounts[path].get("readOnly", False)) for path in paths}
        assert found == {path: (path, read_only) for path in paths}


def test_the_state_follows_the_directory_of_the_kubelet(helm: Helm, tmp_path: Path) -> None:
    used = plugin_of(helm.objects(VARIANTS["another kubelet"]), tmp_path)

    assert used.state_dir == f"{used.kubelet.device_plugin_dir}/gpushare"


def test_the_page_reads_the_configuration_of_the_scheduler_and_has_no_port(helm: Helm, tmp_path: Path) -> None:
    documents = helm.objects({**VARIANTS["another configuration"], "page": {"enabled": True}})
    page = pod_of(one(documents, "Deployment", "gpushare-page"))
    (container,) = page["containers"]
    (mount,) = container["volumeMounts"]
    (volume,) = page["volumes"]

    assert (mount["mountPath"], volume["configMap"]["name"]) == (str(MOUNTED.parent), "gpushare-scheduler")
    assert scheduler_of(documents, tmp_path).memory_unit_mib == 256
    # It listens on loopback, where `kubectl port-forward` reaches it.
    assert (container["args"], container.get("ports")) == (["page"], None)
    (sidecar,) = pod_of(one(helm.objects(VARIANTS["the web page behind a proxy"]), "Deployment", "gpushare-page"))[
        "containers"
    ][1:]
    assert sidecar["name"] == "proxy"


def test_by_default_a_network_policy_lets_in_the_kubelet_alone(helm: Helm) -> None:
    for values, peers in (({"networkPolicy": {"enabled": True}}, 0), (VARIANTS["the web page behind a proxy"], 1)):
        found = [each["spec"] for each in helm.objects(values) if each["kind"] == "NetworkPolicy"]
        assert [len(each["ingress"]) for each in found] == [peers, peers]
        assert {port["port"] for each in found for rule in each["ingress"] for port in rule["ports"]} <= {10261, 10262}


def test_a_library_and_a_description_are_where_the_plugin_looks_for_them(helm: Helm, tmp_path: Path) -> None:
    documents = helm.objects(VARIANTS["HAMi-core"])
    library = Path(plugin_of(documents, tmp_path).hami_core.library)
    (container,) = pod_of(one(documents, "DaemonSet"))["containers"]
    described = helm.objects(VARIANTS["a description of isolation"])
    file = Path(plugin_of(described, tmp_path).isolation)
    (text,) = (each["data"][file.name] for each in described if file.name in each.get("data", {}))
    (tmp_path / file.name).write_text(text, encoding="utf-8")
    mechanism = load(IsolationMechanism, file=tmp_path / file.name, environ={}, flags={}, env_prefix="")

    assert {"name": "hami-core", "mountPath": str(library.parent), "readOnly": True} in container["volumeMounts"]
    (container,) = pod_of(one(described, "DaemonSet"))["containers"]
    assert {"name": "config", "mountPath": str(file.parent), "readOnly": True} in container["volumeMounts"]
    assert (mechanism.preparation, mechanism.environment) == ("mps", {"MY_LIMIT_MIB": "{mib}"})


def test_beside_limits_by_the_driver_a_description_is_the_fallback(helm: Helm, tmp_path: Path) -> None:
    documents = helm.objects(VARIANTS["limits by the driver, otherwise a description"])
    found = plugin_of(documents, tmp_path)
    assert (found.isolation, found.isolation_fallback) == ("auto", "/etc/gpushare/isolation.yaml")


def granted(role: dict[str, Any]) -> set[tuple[str, str, str]]:
    """(verb, resource, namespace or "") of each right."""
    place = role["metadata"].get("namespace", "")
    return {
        (verb, resource, place) for rule in role["rules"] for resource in rule["resources"] for verb in rule["verbs"]
    }


ON: Final = {"enabled": [{"name": "DefaultPreemption"}]}
OFF: Final = {"disabled": [{"name": "DefaultPreemption"}]}


@pytest.mark.parametrize(
    ("profiles", "preempts"),
    [
        pytest.param([{}], True, id="by default"),
        pytest.param([{"plugins": {"postFilter": OFF}}], False, id="off at its point"),
        pytest.param([{"plugins": {"postFilter": {"disabled": [{"name": "*"}]}}}], False, id="off with all"),
        pytest.param([{"plugins": {"multiPoint": OFF}}], False, id="off at every point"),
        pytest.param([{"plugins": {"multiPoint": OFF, "postFilter": ON}}], True, id="on again at its point"),
        pytest.param([{"plugins": {"multiPoint": ON, "postFilter": OFF}}], False, id="on, and off at its point"),
        pytest.param([{"plugins": None}], True, id="nothing behind the key"),
        pytest.param([{"plugins": {"postFilter": OFF}}, {"schedulerName": "b"}], True, id="in one of two profiles"),
    ],
)
def test_the_scheduler_may_delete_pods_where_a_profile_preempts_and_nowhere_else(
    helm: Helm, tmp_path: Path, profiles: list[Any], *, preempts: bool
) -> None:
    documents = helm.objects({"scheduler": {"config": {"profiles": profiles}}})
    needed = {
        (right.verb, f"{right.resource}/{right.subresource}" if right.subresource else right.resource, right.namespace)
        for right in rights_needed(scheduler_of(documents, tmp_path))
    }
    roles = [
        each
        for each in documents
        if each["kind"] in {"ClusterRole", "Role"} and each["metadata"]["name"] == "gpushare-scheduler"
    ]

    assert set().union(*map(granted, roles)) == needed
    assert (("delete", "pods", "") in needed) is preempts


def allowed(documents: list[dict[str, Any]]) -> list[str]:
    """The schedulers that pods may name, less the comments of the expression."""
    spec = one(documents, "ValidatingAdmissionPolicy", "gpushare-scheduler-name")["spec"]
    (expression,) = (each["expression"] for each in spec["variables"] if each["name"] == "schedulers")
    return re.findall(r'^\s*"([^"]+)",$', expression, re.MULTILINE)


@pytest.mark.parametrize(
    "profiles",
    [
        pytest.param(None, id="the default"),
        pytest.param([{"schedulerName": "gpushare-scheduler", "additionalSchedulerNames": []}], id="no other name"),
        pytest.param([{}, {"schedulerName": "gpushare"}], id="the short name is another profile's"),
        pytest.param(
            [{"schedulerName": "a"}, {"schedulerName": "b", "additionalSchedulerNames": ["c", "d"]}], id="others"
        ),
    ],
)
def test_pods_may_name_exactly_the_schedulers_that_the_program_answers_to(
    helm: Helm, tmp_path: Path, profiles: list[Any] | None
) -> None:
    documents = helm.objects({"scheduler": {"config": {"profiles": profiles}}} if profiles else {})
    answers_to = [name for each in resolve(scheduler_of(documents, tmp_path)) for name in each.scheduler_names]

    assert allowed(documents) == answers_to


def test_another_configuration_reaches_everything_that_depends_on_it(helm: Helm) -> None:
    documents = helm.objects(OTHER)
    text = yaml.safe_dump_all(documents)
    lease = one([each for each in documents if each["metadata"].get("namespace") == "default"], "Role")["rules"]
    flow = one(documents, "FlowSchema", "gpushare-scheduler-leases")["spec"]["rules"][0]["resourceRules"][0]

    assert "aliyun.com/gpu-mem" not in text
    assert [rule.get("resourceNames") for rule in lease] == [None, ["shared-gpus"]]
    assert allowed(documents) == ["shared-gpus", "gpushare", "training"]
    assert flow["namespaces"] == ["default"]


def test_another_namespace_and_other_names_reach_the_policies_and_the_flow_schemas(helm: Helm) -> None:
    files = helm.rendered(VARIANTS["other names"], namespace="gpus")
    text = "".join(files.values())

    assert "system:serviceaccount:gpus:shared-gpus-node" in files["admission-policies.yaml"]
    assert 'system:serviceaccount:gpus:shared-gpus"' in files["admission-policies.yaml"]
    assert "system:serviceaccount:kube-system:gpushare-scheduler" not in text
    assert {each["metadata"].get("namespace") for each in yaml.safe_load_all("---\n".join(files.values())) if each} == {
        None,
        "gpus",
        "kube-system",
    }


def test_the_image_is_named_by_its_digest_where_there_is_one(helm: Helm) -> None:
    documents = helm.objects(VARIANTS["an image by its digest"])
    pods = [pod_of(one(documents, kind)) for kind in ("Deployment", "DaemonSet")]

    assert {container["image"] for pod in pods for container in pod["containers"]} == {
        f"registry.example/gpushare@sha256:{'0' * 64}"
    }


@pytest.mark.parametrize(
    ("election", "strategy"),
    [
        pytest.param({}, {"rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}, id="the next one stands by"),
        pytest.param({"leaderElect": False}, {"type": "Recreate"}, id="nobody stands by"),
    ],
)
def test_without_an_election_never_two_schedule_in_a_rollout(
    helm: Helm, election: dict[str, Any], strategy: dict[str, Any]
) -> None:
    documents = helm.objects({"scheduler": {"replicas": 1, "config": {"leaderElection": election}}})

    assert one(documents, "Deployment")["spec"]["strategy"] == strategy


def test_another_configuration_makes_new_pods(helm: Helm) -> None:
    def templates(values: Mapping[str, Any]) -> list[Any]:
        documents = helm.objects(values)
        return [one(documents, kind)["spec"]["template"]["metadata"] for kind in ("Deployment", "DaemonSet")]

    first = templates({"devicePlugin": {"config": {"monitor": "warn"}}})
    other = templates({"devicePlugin": {"config": {"monitor": "off"}}, "scheduler": {"config": {"logLevel": "debug"}}})

    assert all(one != another for one, another in zip(first, other, strict=True))


def test_an_uninstall_runs_in_the_place_of_the_plugin_with_all_that_it_has(helm: Helm) -> None:
    """docs/develop/decisions/0082."""
    plugin, uninstall = (one(helm.objects(VARIANTS[name]), "DaemonSet") for name in ("default", "an uninstall"))
    (runs,), (removes,) = (pod_of(each)["containers"] for each in (plugin, uninstall))

    assert removes.pop("command") == [runs.pop("command")[0], "uninstall", "--wait", "--stay"]
    assert uninstall["spec"].pop("updateStrategy")["rollingUpdate"] == {"maxSurge": 0, "maxUnavailable": "100%"}
    del plugin["spec"]["updateStrategy"]
    assert uninstall == plugin
