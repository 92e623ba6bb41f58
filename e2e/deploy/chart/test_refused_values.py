"""Values that a tired operator writes are refused by their names, before anything is sent to a cluster."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import pytest
import yaml

from e2e.deploy.chart.helm import CHART, Helm, HelmRefused
from e2e.deploy.chart.variants import VARIANTS

DEFAULTS: Final[Mapping[str, Any]] = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))


# Values of the right name that the schema refuses.
WRONG: Final[Sequence[tuple[str, object]]] = (
    ("scheduler.replicas", "two"),
    ("scheduler.podLabels", {"team": "a b"}),
    ("scheduler.extraEnv", [{"name": "A", "value": 1}]),
    ("scheduler.priorityClassName", "Very High"),
    ("scheduler.config.memoryUnitMiB", 0),
    ("scheduler.config.kind", "Deployment"),
    ("scheduler.config.listen", ":99999"),
    ("scheduler.config.leaderElection.leaderElect", "no"),
    ("scheduler.config.leaderElection.resourceNamespace", ""),
    ("page.enabled", "false"),
    ("scheduler.config.profiles", [{"schedulerName": 12}]),
    ("scheduler.config.profiles", [{"schedulerName": 'a"b'}]),
    ("scheduler.config.profiles", [{"additionalSchedulerNames": "gpushare"}]),
    ("scheduler.config.resources.gpuMem", 'a.example/"'),
    ("devicePlugin.selectNodesBy", "gpu"),
    ("devicePlugin.maxUnavailable", "0%"),
    ("devicePlugin.config.stateDir", "state"),
    ("devicePlugin.config.mps.directory", "mps"),
    ("admissionPolicies.schedulerName.action", "Log"),
    ("defaultSchedulerName.enabled", "yes"),
    ("image.digest", "latest"),
    ("image.repository", "registry.example/gpushare:1.2"),
    ("image.repository", "https://registry.example/gpushare"),
    ("image.repository", "registry.example/GPUshare"),
    ("image.repository", " "),
    ("image.tag", "1 2"),
    ("image.pullSecrets", [{"name": ""}]),
    ("names.scheduler", "123"),  # YAML reads it as a number
    ("names.scheduler", "a" * 53),
    ("prometheusRule.runbooks", "docs/runbooks/"),
    ("prometheusRule.runbooks", "https://a.example/b"),  # no slash at the end
    ("prometheusRule.alertLabels", {"a team": "x"}),
)
# Names that do not exist where they stand.
UNKNOWN: Final[Sequence[tuple[str, object]]] = (
    ("tag", "1"),
    ("scheduler.replica", 3),
    ("scheduler.config.memoryUnit", 1),
    ("scheduler.config.leaderElection.leaseduration", "9s"),
    ("devicePlugin.config.nodeName", "a"),
    ("prometheusRule.alerts.GpushareNoLeaders", {}),
    ("prometheusRule.alerts.GpusharePodsWaitLong.thresholds.seconds", 1),
    ("prometheusRule.alerts.GpusharePluginAway.thresholds", {"pods": 1}),
)


def given(values: Mapping[str, Any], path: str = "") -> Iterator[str]:
    """The path of each value that has a default."""
    for name, value in values.items():
        yield f"{path}{name}"
        if isinstance(value, dict) and name not in {"config", "resources", "labels"}:
            yield from given(value, f"{path}{name}.")


def together(cases: Iterable[tuple[str, object]]) -> list[list[tuple[str, object]]]:
    """The cases in as few lists as possible: helm names every fault, but a list may set a value only once."""
    rounds: list[dict[str, object]] = []
    for path, value in cases:
        free = next((one for one in rounds if path not in one), None)
        if free is None:
            rounds.append(free := {})
        free[path] = value
    return [[*one.items()] for one in rounds]


def under(*cases: tuple[str, object]) -> dict[str, Any]:
    """Values as helm takes them."""
    values: dict[str, Any] = {}
    for path, value in cases:
        *parents, name = path.split(".")
        within = values
        for parent in parents:
            within = within.setdefault(parent, {})
        within[name] = value
    return values


def refusal(helm: Helm, values: Mapping[str, Any]) -> str:
    with pytest.raises(HelmRefused) as refused:
        helm.objects(values)
    return str(refused.value)


def faults(helm: Helm, cases: Sequence[tuple[str, object]], fault: str) -> list[str]:
    """Paths of which the fault is not in what helm says. fault: a pattern, see its uses."""
    said = refusal(helm, under(*cases))
    found = []
    for path, _ in cases:
        parent, _, name = ("/" + path.replace(".", "/")).rpartition("/")
        pattern = fault.replace("PARENT", re.escape(parent)).replace("NAME", re.escape(name))
        found += [] if re.search(pattern, said) else [path]
    return found


@pytest.mark.parametrize("cases", together(WRONG))
def test_wrong_values_are_refused_by_their_names(helm: Helm, cases: list[tuple[str, object]]) -> None:
    assert faults(helm, cases, "at 'PARENT/NAME['/]") == []


def test_unknown_names_are_refused(helm: Helm) -> None:
    assert faults(helm, UNKNOWN, "at 'PARENT': additional properties .*'NAME'") == []


@pytest.mark.parametrize("depth", range(1 + max(path.count(".") for path in given(DEFAULTS))))
def test_values_that_are_there_and_empty_are_refused_by_their_names(helm: Helm, depth: int) -> None:
    """YAML reads `replicas:` with nothing behind it as null, by which helm takes the default away."""
    empty = [(path, None) for path in given(DEFAULTS) if path.count(".") == depth]
    assert faults(helm, empty, "at 'PARENT': missing propert.*'NAME'|at 'PARENT/NAME': got null") == []


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
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
        pytest.param("image.repository", "", "image.repository: name the image that you have pushed", id="no image"),
        pytest.param(
            "names", {"scheduler": "a", "devicePlugin": "a"}, "names.devicePlugin: has to differ", id="a name twice"
        ),
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
        pytest.param(
            "admissionPolicies",
            {"enabled": False, "unknownKeys": {"enabled": True}},
            "admissionPolicies.unknownKeys.enabled: there are no policies without admissionPolicies.enabled",
            id="one policy where there are none",
        ),
        pytest.param(
            "devicePlugin.config.isolation",
            "mig",
            "config.isolation: auto, none, driver, mps or hami-core, found mig",
            id="none of ours",
        ),
        pytest.param(
            "devicePlugin.config.isolationFallback",
            "driver",
            "config.isolationFallback: none, mps or hami-core, found driver",
            id="a fallback that may be missing too",
        ),
        pytest.param(
            "devicePlugin",
            {"config": {"isolationFallback": "mps"}, "isolationMechanism": {"preparation": "mps"}},
            "devicePlugin.config.isolationFallback: leave it out",
            id="two fallbacks",
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
            "devicePlugin.config.isolation: auto, or leave it out",
            id="isolation twice",
        ),
    ],
)
def test_values_that_contradict_each_other_are_refused_by_their_names(
    helm: Helm, path: str, value: object, said: str
) -> None:
    assert said in refusal(helm, under((path, value)))


def test_two_monitors_for_the_same_pods_are_refused(helm: Helm) -> None:
    with pytest.raises(HelmRefused, match=r"serviceMonitor\.enabled: podMonitor\.enabled reads the same pods"):
        helm.objects({**VARIANTS["pod monitors"], **VARIANTS["service monitors"]})


def test_an_affinity_beside_that_of_the_labels_is_refused(helm: Helm) -> None:
    with pytest.raises(HelmRefused, match=r"devicePlugin\.affinity: selectNodesBy nfd-labels is an affinity"):
        helm.objects({"devicePlugin": {"selectNodesBy": "nfd-labels", "affinity": {"podAffinity": {}}}})
