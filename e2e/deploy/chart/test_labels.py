"""Labels of what the chart renders, and what values add to pods and accounts."""

from collections.abc import Mapping
from typing import Any

import pytest

from e2e.deploy.chart.helm import Helm
from e2e.deploy.chart.test_values import one, pod_of
from e2e.deploy.chart.variants import VARIANTS, parameters


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
    for each in helm.objects(values):
        labels = labels_of(each)
        assert usual.items() <= labels.items(), (each["kind"], each["metadata"]["name"])
        assert labels["app.kubernetes.io/name"] in (values.get("names") or names).values()


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
