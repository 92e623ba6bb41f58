"""Values that a tired operator writes are refused by their names, before anything is sent to a cluster."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

import pytest
import yaml

from e2e.deploy.chart.helm import CHART, Helm, HelmRefused
from e2e.deploy.chart.variants import VARIANTS

DEFAULTS: Final[Mapping[str, Any]] = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))


def under(path: str, value: object) -> dict[str, Any]:
    for name in reversed(path.split(".")):
        value = {name: value}
    assert isinstance(value, dict)
    return value


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        pytest.param("scheduler.replicas", "two", "scheduler/replicas", id="text for a number"),
        pytest.param("scheduler.replica", 3, "'replica'", id="a misspelt name"),
        pytest.param("tag", "1", "'tag'", id="a name at the wrong place"),
        pytest.param("image.digest", "latest", "image/digest", id="no digest"),
        pytest.param("devicePlugin.selectNodesBy", "gpu", "devicePlugin/selectNodesBy", id="none of the choices"),
        pytest.param("admissionPolicies.schedulerName.action", "Log", "schedulerName/action", id="no action"),
        pytest.param("scheduler.config.memoryUnit", 1, "'memoryUnit'", id="no setting of the scheduler"),
        pytest.param("scheduler.config.memoryUnitMiB", 0, "memoryUnitMiB", id="a unit of nothing"),
        pytest.param("scheduler.config.kind", "Deployment", "config/kind", id="no configuration"),
        pytest.param("devicePlugin.config.nodeName", "a", "'nodeName'", id="one node's name for all nodes"),
        pytest.param(
            "devicePlugin.config.memoryUnitMiB",
            256,
            "devicePlugin.config.memoryUnitMiB: the device plugin takes it from scheduler.config.memoryUnitMiB",
            id="the unit twice",
        ),
        pytest.param(
            "scheduler.config.leaderElection.leaderElect", False, "scheduler.replicas: more than one", id="no election"
        ),
        pytest.param(
            "devicePlugin",
            {"enabled": False, "uninstall": True},
            "devicePlugin.uninstall: it is the device plugin's DaemonSet that uninstalls",
            id="an uninstall by nobody",
        ),
        pytest.param("defaultSchedulerName.enabled", "yes", "defaultSchedulerName/enabled", id="text for a switch"),
        pytest.param("image.repository", "registry.example/gpushare:1.2", "image/repository", id="a tag in the name"),
        pytest.param("image.repository", "https://registry.example/gpushare", "image/repository", id="an address"),
        pytest.param("image.repository", "registry.example/GPUshare", "image/repository", id="capitals in the name"),
        pytest.param("image.repository", " ", "image/repository", id="an image without a name"),
        pytest.param("image.repository", "", "image.repository: name the image that you have pushed", id="no image"),
        pytest.param("image.tag", "1 2", "image/tag", id="no tag"),
        pytest.param("image.pullSecrets", [{"name": ""}], "pullSecrets/0/name", id="a secret without a name"),
        pytest.param(
            "names", {"scheduler": "a", "devicePlugin": "a"}, "names.devicePlugin: has to differ", id="a name twice"
        ),
        pytest.param("names.scheduler", "123", "names/scheduler", id="a name that YAML reads as a number"),
        pytest.param("names.scheduler", "a" * 53, "names/scheduler", id="a name that is too long"),
        pytest.param(
            "scheduler.podAnnotations",
            {"checksum/config": "mine"},
            "scheduler.podAnnotations: checksum/config is the chart's own",
            id="an annotation of the chart",
        ),
        pytest.param(
            "devicePlugin.podLabels",
            {"app.kubernetes.io/name": "mine"},
            "devicePlugin.podLabels: app.kubernetes.io/name is the chart's own",
            id="the label by which pods are found",
        ),
        pytest.param("scheduler.podLabels", {"team": "a b"}, "podLabels/team", id="a label with a blank"),
        pytest.param(
            "scheduler.extraEnv",
            [{"name": "GPUSHARE_SCHEDULER_LISTEN", "value": ":1"}],
            "scheduler.extraEnv: GPUSHARE_SCHEDULER_LISTEN is a setting of the program; set it in scheduler.config",
            id="a setting that nothing follows",
        ),
        pytest.param(
            "devicePlugin.extraEnv",
            [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "0"}],
            "devicePlugin.extraEnv: NVIDIA_VISIBLE_DEVICES is the chart's own",
            id="a variable twice",
        ),
        pytest.param("scheduler.extraEnv", [{"name": "A", "value": 1}], "extraEnv/0/value", id="a number for a text"),
        pytest.param("prometheusRule.runbooks", "docs/runbooks/", "prometheusRule/runbooks", id="a link to nowhere"),
        pytest.param("prometheusRule.runbooks", "https://a.example/b", "prometheusRule/runbooks", id="no slash"),
        pytest.param("prometheusRule.alerts", {"GpushareNoLeaders": {}}, "'GpushareNoLeaders'", id="no alert"),
        pytest.param(
            "prometheusRule.alerts",
            {"GpusharePodsWaitLong": {"thresholds": {"seconds": 1}}},
            "'seconds'",
            id="no threshold of that alert",
        ),
        pytest.param(
            "prometheusRule.alerts",
            {"GpusharePluginAway": {"thresholds": {"pods": 1}}},
            "'thresholds'",
            id="an alert without a threshold",
        ),
        pytest.param(
            "prometheusRule",
            {"enabled": True, "alertLabels": {"severity": "page"}},
            "prometheusRule.alertLabels.severity: would be that of every alert",
            id="one severity for all",
        ),
        pytest.param(
            "prometheusRule",
            {"enabled": True, "alerts": {"GpushareNoLeader": {"labels": {"severity": "page"}}}},
            "labels.severity: set prometheusRule.alerts.GpushareNoLeader.severity",
            id="a severity among the labels",
        ),
        pytest.param("prometheusRule.alertLabels", {"a team": "x"}, "prometheusRule/alertLabels", id="no label name"),
        pytest.param("scheduler.priorityClassName", "Very High", "priorityClassName", id="no class"),
        pytest.param("scheduler.config.listen", ":99999", "config/listen", id="no port"),
        pytest.param(
            "scheduler.config.listen",
            "127.0.0.1:10261",
            "scheduler.config.listen: 127.0.0.1:10261 is reached from within the pod alone",
            id="the scheduler where no probe reaches it",
        ),
        pytest.param(
            "devicePlugin.config.listen",
            "localhost:10262",
            "devicePlugin.config.listen: localhost:10262 is reached from within the pod alone",
            id="the device plugin where no probe reaches it",
        ),
        pytest.param("scheduler.config.leaderElection.leaderElect", "no", "leaderElect", id="text for the election"),
        pytest.param(
            "scheduler.config.leaderElection.resourceNamespace", "", "resourceNamespace", id="a Lease nowhere"
        ),
        pytest.param("scheduler.config.leaderElection.leaseduration", "9s", "'leaseduration'", id="a misspelt setting"),
        pytest.param("scheduler.config.page.enabled", "false", "page/enabled", id="text that says no"),
        pytest.param(
            "scheduler.config.page",
            {"enabled": True, "listen": ":10264", "certFile": "/tls/crt", "keyFile": "/tls/key"},
            "name the Secret in scheduler.pageSecretName",
            id="a certificate that is not mounted",
        ),
        pytest.param(
            "scheduler.config.page",
            {"enabled": True, "listen": ":10264"},
            "scheduler.config.page.listen: :10264 needs a certificate, in scheduler.pageSecretName",
            id="the page without a certificate",
        ),
        pytest.param(
            "scheduler.config.profiles", [{"schedulerName": 12}], "schedulerName", id="a number for a scheduler"
        ),
        pytest.param("scheduler.config.profiles", [{"schedulerName": 'a"b'}], "schedulerName", id="a quote in a name"),
        pytest.param(
            "scheduler.config.profiles",
            [{"additionalSchedulerNames": "gpushare"}],
            "additionalSchedulerNames",
            id="a name for a list",
        ),
        pytest.param(
            "scheduler.config.resources.gpuMem", 'a.example/"', "resources/gpuMem", id="a quote in a resource"
        ),
        pytest.param("devicePlugin.maxUnavailable", "0%", "maxUnavailable", id="a rollout that does nothing"),
        pytest.param(
            "devicePlugin.nodeSelector",
            {"gpushare": "false"},
            "devicePlugin.nodeSelector.gpushare: selectNodesBy gpushare-label selects gpushare=true",
            id="the opposite of the label",
        ),
        pytest.param(
            "devicePlugin.config.monitor", "evict", "need devicePlugin.mayEvict", id="to evict without the right"
        ),
        pytest.param(
            "devicePlugin.config.evictUnscheduled",
            True,
            "need devicePlugin.mayEvict",
            id="to evict those without a card, without the right",
        ),
        pytest.param(
            "devicePlugin.config.markAssigned",
            True,
            "needs devicePlugin.mayMarkAssigned",
            id="to mark without the right",
        ),
        pytest.param("devicePlugin.config.stateDir", "state", "config/stateDir", id="a state in no absolute path"),
        pytest.param(
            "admissionPolicies",
            {"enabled": False, "unknownKeys": {"enabled": True}},
            "admissionPolicies.unknownKeys.enabled: there are no policies without admissionPolicies.enabled",
            id="one policy where there are none",
        ),
        pytest.param("devicePlugin.config.mps.directory", "mps", "mps/directory", id="pipes in no absolute path"),
        pytest.param(
            "devicePlugin.config.isolation", "mig", "config.isolation: none, mps or hami-core", id="none of ours"
        ),
        pytest.param(
            "devicePlugin.config.isolation",
            "/etc/own.yaml",
            "nothing is mounted at /etc/own.yaml; put what that file says into devicePlugin.isolationMechanism",
            id="a description that is not there",
        ),
        pytest.param(
            "devicePlugin.config.isolation", "hami-core", "devicePlugin.config.hamiCore.library", id="no library"
        ),
        pytest.param(
            "devicePlugin.config",
            {"isolation": "hami-core", "hamiCore": {"library": "/usr/lib/x86_64-linux-gnu/libvgpu.so"}},
            "in a directory of its own",
            id="a library in a directory that the image needs",
        ),
        pytest.param(
            "devicePlugin",
            {"config": {"isolation": "mps"}, "isolationMechanism": {"preparation": "mps"}},
            "devicePlugin.config.isolation: leave it out",
            id="isolation twice",
        ),
    ],
)
def test_a_wrong_value_is_refused_by_its_name(helm: Helm, path: str, value: object, said: str) -> None:
    with pytest.raises(HelmRefused) as refused:
        helm.objects(under(path, value))

    assert said in str(refused.value)


def given(values: Mapping[str, Any], path: str = "") -> Iterator[str]:
    """The path of each value that has a default."""
    for name, value in values.items():
        yield f"{path}{name}"
        if isinstance(value, dict) and name not in {"config", "resources", "labels"}:
            yield from given(value, f"{path}{name}.")


@pytest.mark.parametrize("path", [*given(DEFAULTS)])
def test_a_value_that_is_there_and_empty_is_refused_by_its_name(helm: Helm, path: str) -> None:
    """YAML reads `replicas:` with nothing behind it as null, by which helm takes the default away."""
    *_, name = path.split(".")
    with pytest.raises(HelmRefused, match=rf"missing property '{name}'|got null"):
        helm.objects(under(path, None))


def test_two_monitors_for_the_same_pods_are_refused(helm: Helm) -> None:
    with pytest.raises(HelmRefused, match=r"serviceMonitor\.enabled: podMonitor\.enabled reads the same pods"):
        helm.objects({**VARIANTS["pod monitors"], **VARIANTS["service monitors"]})


def test_an_affinity_beside_that_of_the_labels_is_refused(helm: Helm) -> None:
    with pytest.raises(HelmRefused, match=r"devicePlugin\.affinity: selectNodesBy nfd-labels is an affinity"):
        helm.objects({"devicePlugin": {"selectNodesBy": "nfd-labels", "affinity": {"podAffinity": {}}}})
