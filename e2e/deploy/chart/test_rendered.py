"""The manifests in the repository are what the chart renders, and it renders what each Kubernetes has.

docs/decisions/0065.
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
from e2e.deploy.chart.helm import CHART, Helm, HelmRefused
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


@pytest.mark.parametrize("folder", ["optional/mps", "optional/nvidia-runtime-class"])
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
