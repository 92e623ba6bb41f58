import pytest

from scheduler.kube.objects import ObjectMeta, PodObject, PodSpec, PodStatus
from scheduler.kube.port import CONFIG_MAPS, NODES, PODS, ApiRejected, Kind
from scheduler.testing.cluster.store import namespace_of, resource_of, shown_by


def pod_kind(selector: str, path: str = "/api/v1/pods") -> Kind[PodObject]:
    return Kind("pods", PodObject, path, selector)


POD = PodObject(ObjectMeta(name="p", namespace="ns"), PodSpec(node_name="n"), PodStatus(phase="Running"))


@pytest.mark.parametrize(
    ("kind", "shown"),
    [
        pytest.param(PODS, True, id="not finished"),
        pytest.param(pod_kind("status.phase!=Running"), False, id="finished"),
        pytest.param(pod_kind("spec.nodeName=n"), True, id="on a node"),
        pytest.param(pod_kind("spec.nodeName==n,status.phase=Pending"), False, id="one term of two"),
        pytest.param(pod_kind("", "/api/v1/namespaces/ns/pods"), True, id="its namespace"),
        pytest.param(pod_kind("", "/api/v1/namespaces/other/pods"), False, id="another namespace"),
    ],
)
def test_a_kind_shows_what_its_path_and_its_selector_say(kind: Kind[PodObject], *, shown: bool) -> None:
    assert shown_by(kind)(POD) is shown


@pytest.mark.parametrize(
    ("selector", "message"),
    [
        pytest.param("spec.hostname=x", "field label not supported: spec.hostname", id="unknown field"),
        pytest.param("status.phase", "invalid field selector", id="no operator"),
    ],
)
def test_a_selector_that_a_server_refuses_is_refused(selector: str, message: str) -> None:
    with pytest.raises(ApiRejected, match=message):
        shown_by(pod_kind(selector))


def test_the_path_names_the_resource_and_its_namespace() -> None:
    assert (resource_of(CONFIG_MAPS), namespace_of(CONFIG_MAPS)) == ("configmaps", "kube-system")
    assert (resource_of(NODES), namespace_of(NODES)) == ("nodes", "")
