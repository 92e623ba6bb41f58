"""The manifests in the repository are what the chart renders, and it renders what each Kubernetes has.

docs/develop/decisions/0065. What all of it is labelled with, and what helm says after an installation.
"""

import shutil
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from e2e.control_plane import binaries
from e2e.deploy.chart import rendered
from e2e.deploy.chart.helm import CHART, IMAGE, RELEASE, Helm, HelmRefused
from e2e.deploy.chart.test_values import one, plugin_of, pod_of
from e2e.deploy.chart.variants import VARIANTS, parameters
from scheduler.kube.versions import Minor
from tests.support.documents.api_versions import NEWEST, OLDEST, Kind, unserved

MINORS: Final = [Minor(1, minor) for minor in range(OLDEST.minor, NEWEST.minor + 1)]
# With these, everything that the version has is rendered.
ALL: Final = ("every policy", "pod monitors", "a device plugin with a configuration")


def kinds(documents: list[dict[str, Any]]) -> frozenset[Kind]:
    return frozenset(Kind(document["apiVersion"], document["kind"]) for document in documents)


def by_name(documents: Iterable[dict[str, Any]]) -> dict[tuple[str, str, str], dict[str, Any]]:
    return {(each["kind"], each["metadata"].get("namespace", ""), each["metadata"]["name"]): each for each in documents}


def merged(*names: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name in names:
        found |= VARIANTS[name]
    return found


def test_the_manifests_are_what_the_chart_renders(helm: Helm) -> None:
    wanted = rendered.files(helm)

    assert {path: path.read_text(encoding="utf-8") for path in wanted if path.exists()} == wanted


def test_there_is_no_manifest_beside_them(helm: Helm) -> None:
    there = {*rendered.MANIFESTS.glob("*.yaml"), *rendered.OPTIONAL.rglob("*.yaml")}
    written_by_hand = {path for path in there if path.name == "kustomization.yaml"}
    assert there - written_by_hand == set(rendered.files(helm))


@pytest.mark.parametrize(
    ("folder", "values"),
    [
        pytest.param(rendered.MANIFESTS, {}, id="default"),
        pytest.param(rendered.OPTIONAL / "mps", VARIANTS["MPS"], id="MPS"),
        pytest.param(
            rendered.OPTIONAL / "nvidia-runtime-class", VARIANTS["the NVIDIA runtime class"], id="the runtime class"
        ),
    ],
)
def test_kubectl_applies_the_objects_that_helm_installs(helm: Helm, folder: Path, values: Mapping[str, Any]) -> None:
    built = [str(binaries.ensure(["kubectl"])["kubectl"]), "kustomize", str(folder)]
    applied = subprocess.run(built, capture_output=True, text=True, check=True).stdout

    installed = by_name(helm.objects(values))
    for each in installed.values():
        for label in rendered.OF_HELM:
            del each["metadata"]["labels"][label]
    assert by_name(yaml.safe_load_all(applied)) == installed


def test_kubectl_mounts_another_directory_of_cdi_specs_as_helm_does(helm: Helm, tmp_path: Path) -> None:
    built = [str(binaries.ensure(["kubectl"])["kubectl"]), "kustomize", str(rendered.OPTIONAL / "etc-cdi")]
    applied = list(yaml.safe_load_all(subprocess.run(built, capture_output=True, text=True, check=True).stdout))
    pod = pod_of(one(applied, "DaemonSet"))
    directories = plugin_of(applied, tmp_path).cdi_spec_dirs
    by_helm = pod_of(one(helm.objects({"devicePlugin": {"config": {"cdiSpecDirs": list(directories)}}}), "DaemonSet"))

    assert directories == ("/etc/cdi", "/var/run/cdi")
    assert pod["volumes"] == by_helm["volumes"][:-1]  # the last is its configuration, here a variable
    assert pod["containers"][0]["volumeMounts"] == by_helm["containers"][0]["volumeMounts"][:-1]


@pytest.mark.parametrize("folder", ["optional/etc-cdi", "optional/mps", "optional/nvidia-runtime-class"])
def test_what_stands_on_the_manifests_has_the_image_that_they_were_given(folder: str, tmp_path: Path) -> None:
    deploy = tmp_path / "deploy"
    shutil.copytree(rendered.MANIFESTS.parent, deploy)
    # As `kustomize edit set image` writes it.
    with (deploy / "manifests" / "kustomization.yaml").open("a", encoding="utf-8") as base:
        base.write("images:\n- name: gpushare-scheduler\n  newName: registry.example/ours\n  newTag: 9.9.9\n")
    built = [str(binaries.ensure(["kubectl"])["kubectl"]), "kustomize", str(deploy / folder)]
    applied = subprocess.run(built, capture_output=True, text=True, check=True).stdout

    pods = [
        each["spec"]["template"]["spec"] for each in yaml.safe_load_all(applied) if "template" in each.get("spec", {})
    ]
    assert [container["image"] for pod in pods for container in pod["containers"]] == [
        "registry.example/ours:9.9.9"
    ] * 2


def test_helm_finds_no_fault(helm: Helm) -> None:
    assert "0 chart(s) failed" in helm("lint", "--strict", str(CHART))


@pytest.mark.parametrize("minor", MINORS, ids=str)
def test_every_kind_is_served_by_that_kubernetes(helm: Helm, minor: Minor) -> None:
    for values in ({}, merged(*ALL)) if minor >= Minor(1, 30) else ({},):
        assert unserved(kinds(helm.objects(values, kubernetes=f"{minor}.0")), minor) == frozenset()


@pytest.mark.parametrize("values", parameters())
def test_every_kind_of_every_variant_is_known(helm: Helm, values: Mapping[str, Any]) -> None:
    assert unserved(kinds(helm.objects(values)), NEWEST) == frozenset()


def test_policies_are_rendered_where_the_api_server_has_them(helm: Helm) -> None:
    with_policies = {
        minor: any(
            kind.kind == "ValidatingAdmissionPolicy" for kind in kinds(helm.objects({}, kubernetes=f"{minor}.0"))
        )
        for minor in (Minor(1, 29), Minor(1, 30))
    }
    assert with_policies == {Minor(1, 29): False, Minor(1, 30): True}


@pytest.mark.parametrize(
    ("values", "kubernetes", "message"),
    [
        pytest.param({}, "1.28.15", "chart requires kubeVersion: >=1.29.0-0", id="Kubernetes before 1.29"),
        pytest.param(
            VARIANTS["a default scheduler name"],
            "1.35.4",
            "Kubernetes v1.35.4 has no MutatingAdmissionPolicy (1.36 has)",
            id="a default scheduler name before 1.36",
        ),
        pytest.param(
            {"devicePlugin": {"mayMarkAssigned": True}},
            "1.29.6",
            "devicePlugin.mayMarkAssigned: without the admission policies",
            id="the right to patch pods before there are policies",
        ),
        pytest.param(
            {"admissionPolicies": {"volumes": {"enabled": True}}},
            "1.29.6",
            "admissionPolicies.volumes.enabled: there are no policies without admissionPolicies.enabled, or before",
            id="an optional policy before there are policies",
        ),
    ],
)
def test_what_a_version_cannot_have_is_refused(
    helm: Helm, values: Mapping[str, Any], kubernetes: str, message: str
) -> None:
    with pytest.raises(HelmRefused) as refused:
        helm.objects(values, kubernetes=kubernetes)

    assert message in str(refused.value)


def labels_of(each: dict[str, Any]) -> dict[str, str]:
    found: dict[str, str] = each["metadata"].get("labels", {})
    return found


@pytest.mark.parametrize("values", parameters())
def test_every_object_says_by_its_labels_whose_it_is(helm: Helm, values: Mapping[str, Any]) -> None:
    usual = {
        "app.kubernetes.io/instance": "gpushare-scheduler",
        "app.kubernetes.io/managed-by": "Helm",
        "helm.sh/chart": "gpushare-scheduler-0.1.0",
    }
    names = {"scheduler": "gpushare-scheduler", "devicePlugin": "gpushare-scheduler-device-plugin"}
    names |= {"page": "gpushare-page", **values.get("names", {})}
    for each in helm.objects(values):
        labels = labels_of(each)
        assert usual.items() <= labels.items(), (each["kind"], each["metadata"]["name"])
        assert labels["app.kubernetes.io/name"] in names.values()


def test_labels_of_monitors_and_rules_are_added_to_the_usual_ones(helm: Helm) -> None:
    documents = helm.objects(VARIANTS["a company"])
    found = [labels_of(each) for each in documents if each["kind"] in {"PodMonitor", "PrometheusRule"}]

    assert len(found) == 3
    assert all(each["release"] == "prometheus" and "helm.sh/chart" in each for each in found)


def test_pods_have_the_labels_variables_and_accounts_that_the_values_add(helm: Helm) -> None:
    documents = helm.objects(VARIANTS["other nodes"])
    given = VARIANTS["other nodes"]["scheduler"]
    accounts = [each["metadata"]["annotations"] for each in documents if each["kind"] == "ServiceAccount"]
    for workload in (one(documents, "Deployment"), one(documents, "DaemonSet")):
        labels = workload["spec"]["template"]["metadata"]["labels"]
        (container,) = pod_of(workload)["containers"]
        names = [each["name"] for each in container["env"]]
        assert given["podLabels"].items() <= labels.items()
        assert workload["spec"]["selector"]["matchLabels"].items() <= labels.items()
        assert container["env"][-2:] == given["extraEnv"]
        assert len(set(names)) == len(names)
    assert accounts == [given["serviceAccountAnnotations"]] * 2


def test_another_version_of_the_chart_makes_no_new_pods(helm: Helm) -> None:
    """Their labels say nothing of it: the device plugins of all nodes would start again."""
    for kind in ("Deployment", "DaemonSet"):
        workload = one(helm.objects({}), kind)
        assert "helm.sh/chart" not in workload["spec"]["template"]["metadata"]["labels"]


@pytest.mark.parametrize("labels", [{"gpushare": "false"}, {"gpushare": "true"}, {}])
def test_nodes_that_were_discovered_are_kept_out_by_a_label(helm: Helm, labels: dict[str, str]) -> None:
    affinity = pod_of(one(helm.objects(VARIANTS["labels of Node Feature Discovery"]), "DaemonSet"))["affinity"]
    terms = affinity["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    node = {"nvidia.com/gpu.present": "true", "feature.node.kubernetes.io/pci-10de.present": "true", **labels}
    chosen = any(
        all(
            (node.get(each["key"]) in each["values"]) is (each["operator"] == "In") for each in term["matchExpressions"]
        )
        for term in terms
    )

    assert chosen is (labels.get("gpushare") != "false")


ASKS: Final = "new pods that request aliyun.com/gpu-mem"


def notes(helm: Helm, values: Mapping[str, Any]) -> str:
    said = helm("install", RELEASE, str(CHART), "--dry-run=client", values={**IMAGE, **values})
    return " ".join(said.partition("\nNOTES:\n")[2].split())


@pytest.mark.parametrize(
    ("variant", "said", "not_said"),
    [
        pytest.param(
            "default",
            [
                f"{ASKS} with nodeName, or without the schedulerName above: rejected.",
                "kubectl gpushare doctor",
                "schedulerName.action=Warn",
                "allocations written by anyone but the scheduler, cluster",
            ],
            ["NVIDIA_VISIBLE_DEVICES", "misspelled"],
            id="by default",
        ),
        pytest.param(
            "every policy",
            [
                "without the schedulerName above: created, with a warning.",
                f"{ASKS} and set NVIDIA_VISIBLE_DEVICES: rejected.",
                "with a misspelled gpushare/ key: created, with an entry in the audit log.",
            ],
            ["schedulerName.action=Warn"],
            id="every policy, each with an action",
        ),
        pytest.param(
            "a default scheduler name",
            [f"{ASKS} with nodeName, or with the schedulerName of any other scheduler: rejected."],
            ["without the schedulerName above"],
            id="a name by default",
        ),
        pytest.param(
            "while migrating",
            [
                "with the schedulerName of any other scheduler: rejected.",
                "anyone but the scheduler and the legacy components, cluster",
            ],
            ["without the schedulerName above"],
            id="while migrating",
        ),
        pytest.param(
            "no policies", ["kubectl gpushare doctor", "WARNING: without"], ["rejected", "in force"], id="no policies"
        ),
        pytest.param("an uninstall", ["helm uninstall"], ["kubectl gpushare doctor"], id="an uninstall"),
    ],
)
def test_the_notes_say_what_is_rejected_from_now_on_and_how_to_check(
    helm: Helm, variant: str, said: list[str], not_said: list[str]
) -> None:
    text = notes(helm, VARIANTS[variant])

    assert [words for words in said if words not in text] == []
    assert [words for words in not_said if words in text] == []
