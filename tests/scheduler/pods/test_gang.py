"""Which gang a pod names."""

import pytest

from scheduler.kube import objects
from scheduler.pods.gang import Gang, GangKey, gang_of
from tests.support.builders import pod

OURS = {"gpushare/gang": "ours", "gpushare/gang-min": "3"}
PLUGINS = {"scheduling.x-k8s.io/pod-group": "plugins"}
VOLCANO = {"scheduling.k8s.io/group-name": "volcano"}
NATIVE = objects.SchedulingGroup("native")


@pytest.mark.parametrize(
    ("annotations", "labels", "group", "expected"),
    [
        pytest.param({}, {}, None, None, id="none"),
        pytest.param({"gpushare/gang": ""}, {}, None, None, id="empty"),
        pytest.param(OURS, {}, None, Gang(GangKey("ns", "ours"), 3), id="our annotations"),
        pytest.param({}, PLUGINS, None, Gang(GangKey("ns", "plugins", "scheduling.x-k8s.io"), 0), id="label"),
        pytest.param(VOLCANO, {}, None, Gang(GangKey("ns", "volcano", "scheduling.volcano.sh"), 0), id="Volcano"),
        pytest.param({}, {}, NATIVE, Gang(GangKey("ns", "native", "scheduling.k8s.io"), 0), id="native"),
        pytest.param(OURS | VOLCANO, PLUGINS, NATIVE, Gang(GangKey("ns", "ours"), 3), id="ours first"),
        pytest.param(
            VOLCANO, PLUGINS, NATIVE, Gang(GangKey("ns", "native", "scheduling.k8s.io"), 0), id="then the native one"
        ),
    ],
)
def test_the_gang_that_a_pod_names(
    annotations: dict[str, str], labels: dict[str, str], group: objects.SchedulingGroup | None, expected: Gang | None
) -> None:
    meta = objects.ObjectMeta("p", "ns", annotations=annotations or None, labels=labels or None)
    assert gang_of(meta, group) == expected


def test_a_pod_is_read_with_its_gang() -> None:
    read = pod("p", labels=PLUGINS, schedulingGroup={"podGroupName": "native"})
    assert read.gang is not None
    assert (str(read.gang.key), read.template.unsupported) == ("PodGroup native of scheduling.k8s.io", ())
