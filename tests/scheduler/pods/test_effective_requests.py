"""Requests of whole pods: overhead, requests of the pod level, limits, resizes; the formula is in config/protocol."""

from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from config.protocol.quantity import QuantityError
from scheduler.kube import objects
from scheduler.pods.effective_requests import MOST, amounts, effective_requests, status_of
from scheduler.pods.effective_requests import resized as said_of

MIB = 1024 * 1024


def c(
    cpu: str = "", more: dict[str, str] | None = None, *, name: str = "c", sidecar: bool = False, limit: str = ""
) -> dict[str, Any]:
    """A container: its requests of cpu and more, and its limit of cpu."""
    requests = {**({"cpu": cpu} if cpu else {}), **(more or {})}
    limits = {"cpu": limit} if limit else {}
    container: dict[str, Any] = {"name": name, "resources": {"requests": requests, "limits": limits}}
    return {**container, "restartPolicy": "Always"} if sidecar else container


def resized(name: str, actuated: dict[str, str] | None, allocated: dict[str, str] | None = None) -> dict[str, Any]:
    """A container's status. actuated: None when the kubelet has said nothing yet."""
    resources = None if actuated is None else {"requests": actuated}
    return {"name": name, "resources": resources, "allocatedResources": allocated}


def wire(
    containers: list[dict[str, Any]], init: list[dict[str, Any]] | None = None, **rest: object
) -> objects.PodObject:
    """A pod. rest: fields of the spec, and `status`."""
    status = rest.pop("status", {})
    spec = {"containers": containers, "initContainers": init or [], **rest}
    return msgspec.convert({"metadata": {"name": "p"}, "spec": spec, "status": status}, objects.PodObject)


def being_resized(
    asked: str, actuated: dict[str, str] | None, allocated: dict[str, str] | None = None, *, pending: str = ""
) -> objects.PodObject:
    """A pod of one container. asked: cpu in its spec. pending: why the kubelet has not resized it yet."""
    status = {"containerStatuses": [resized("c", actuated, allocated)], "conditions": resize_pending(pending)}
    return wire([c(asked)], status=status)


def resize_pending(reason: str) -> list[dict[str, str]]:
    return [{"type": "PodResizePending", "status": "True", "reason": reason}] if reason else []


def as_kept(pod: objects.PodObject) -> objects.PodObject:
    """With no more of its status than is kept of it."""
    return replace(pod, status=status_of(said_of(pod)))


@pytest.mark.parametrize(
    ("pod", "cpu_millis"),
    [
        pytest.param(wire([c()]), 0, id="nothing asked"),
        pytest.param(wire([c("1"), c("500m")]), 1500, id="containers add up"),
        pytest.param(wire([c("1")], [c("3")]), 3000, id="an init container that is larger"),
        pytest.param(wire([c("1")], [c("2", sidecar=True), c("4")]), 6000, id="a sidecar runs beside later ones"),
        pytest.param(wire([c("1")], [c("4"), c("2", sidecar=True)]), 4000, id="but not beside earlier ones"),
        pytest.param(wire([c("1")], overhead={"cpu": "250m"}), 1250, id="overhead"),
        pytest.param(wire([c("1")], [c("3")], overhead={"cpu": "250m"}), 3250, id="overhead comes last"),
        pytest.param(wire([c("1")], resources={"requests": {"cpu": "2"}}), 2000, id="pod level wins over containers"),
        pytest.param(wire([c("3")], resources={"requests": {"cpu": "2"}}), 2000, id="also where it is less"),
        pytest.param(
            wire([c("3")], [c("9")], resources={"requests": {"cpu": "2"}}), 2000, id="and over init containers"
        ),
        pytest.param(
            wire([c("3")], resources={"requests": {"cpu": "2"}}, overhead={"cpu": "1"}), 3000, id="not over overhead"
        ),
        pytest.param(
            wire([c("3")], resources={"requests": {"memory": "1Gi"}}), 3000, id="pod level of another resource"
        ),
        pytest.param(wire([c("3")], resources={"limits": {"cpu": "5"}}), 3000, id="a pod-level limit is no request"),
        pytest.param(wire([c()], resources={"limits": {"cpu": "5"}}), 5000, id="unless no container asks"),
        pytest.param(wire([c("3", limit="4")], resources={"limits": {"cpu": "5"}}), 3000, id="limits of both"),
        pytest.param(wire([c(limit="2")]), 2000, id="a limit is a request where there is none"),
        pytest.param(wire([c("1", limit="2")]), 1000, id="and not where there is one"),
        pytest.param(wire([c("0", limit="2")]), 0, id="even if it is zero"),
    ],
)
def test_requests_follow_the_container_formula(pod: objects.PodObject, cpu_millis: int) -> None:
    assert effective_requests(pod).amounts.get("cpu", 0) == cpu_millis


@pytest.mark.parametrize(
    ("pod", "cpu_millis"),
    [
        pytest.param(being_resized("2", None), 2000, id="no status yet"),
        pytest.param(being_resized("2", {"cpu": "3"}), 3000, id="shrinking"),
        pytest.param(being_resized("2", {"cpu": "1"}), 2000, id="growing"),
        pytest.param(being_resized("2", {"cpu": "1"}, {"cpu": "4"}), 4000, id="admitted"),
        pytest.param(
            being_resized("2", None, {"cpu": "4"}), 2000, id="admitted counts only once something is actuated"
        ),
        pytest.param(being_resized("5", {"cpu": "3"}, pending="Deferred"), 5000, id="deferred"),
        pytest.param(being_resized("5", {"cpu": "3"}, pending="Infeasible"), 3000, id="infeasible"),
        pytest.param(
            being_resized("5", {"cpu": "3"}, {"cpu": "4"}, pending="Infeasible"),
            4000,
            id="infeasible, the larger of actuated and admitted",
        ),
        pytest.param(being_resized("5", {}, pending="Infeasible"), 0, id="infeasible, nothing actuated"),
        pytest.param(
            wire(
                [c("1")],
                [c("2", name="s", sidecar=True)],
                status={"initContainerStatuses": [resized("s", {"cpu": "3"})]},
            ),
            4000,
            id="a sidecar is resized as a container is",
        ),
        pytest.param(
            wire([c("1")], [c("2", name="i")], status={"initContainerStatuses": [resized("i", {"cpu": "3"})]}),
            2000,
            id="an init container is not",
        ),
        pytest.param(
            wire([c("1")], status={"containerStatuses": [{"name": "c", "resources": {"limits": {"cpu": "9"}}}]}),
            1000,
            id="an actuated limit is no request",
        ),
    ],
)
def test_a_resize_in_place(pod: objects.PodObject, cpu_millis: int) -> None:
    assert effective_requests(pod).amounts.get("cpu", 0) == cpu_millis
    assert effective_requests(as_kept(pod)) == effective_requests(pod)


def test_every_resource_follows_the_formula_on_its_own() -> None:
    containers = [c("1", {"memory": "1Gi", "hugepages-2Mi": "4Mi"}), c("1", {"ephemeral-storage": "1k"})]
    init = [c("3", {"memory": "1Mi", "x.com/dev": "2"})]
    assert effective_requests(wire(containers, init)).amounts == {
        "cpu": 3000,
        "memory": 1024 * MIB,
        "hugepages-2Mi": 4 * MIB,
        "ephemeral-storage": 1000,
        "x.com/dev": 2,
    }


def test_pod_level_counts_for_cpu_memory_and_huge_pages_only() -> None:
    level = {"requests": {"memory": "2Mi", "hugepages-2Mi": "2Mi", "x.com/dev": "7", "ephemeral-storage": "7"}}
    pod = wire([c("1", {"memory": "1Mi", "x.com/dev": "1"})], resources=level)
    assert effective_requests(pod).amounts == {"cpu": 1000, "memory": 2 * MIB, "hugepages-2Mi": 2 * MIB, "x.com/dev": 1}


LEVEL = {"requests": {"cpu": "2"}}


@pytest.mark.parametrize(
    ("status", "cpu_millis"),
    [
        pytest.param({}, 2000, id="no status yet"),
        pytest.param({"resources": {"requests": {"cpu": "3"}}}, 3000, id="shrinking"),
        pytest.param({"resources": {"requests": {"cpu": "1"}}}, 2000, id="growing"),
        pytest.param(
            {"resources": {"requests": {"cpu": "1"}}, "allocatedResources": {"cpu": "4"}}, 4000, id="admitted"
        ),
        pytest.param({"allocatedResources": {"cpu": "4"}}, 2000, id="admitted, and nothing actuated"),
        pytest.param(
            {"resources": {"requests": {"cpu": "3"}}, "conditions": resize_pending("Deferred")}, 3000, id="deferred"
        ),
        pytest.param(
            {"resources": {"requests": {"cpu": "1"}}, "conditions": resize_pending("Infeasible")}, 1000, id="infeasible"
        ),
        pytest.param(
            {"resources": {}, "conditions": resize_pending("Infeasible")}, 0, id="infeasible, and nothing actuated"
        ),
    ],
)
def test_a_resize_in_place_of_the_pod_as_a_whole(status: dict[str, Any], cpu_millis: int) -> None:
    pod = wire([c("1", {"memory": "1Mi"})], resources=LEVEL, status=status)
    assert effective_requests(pod).amounts == {name: n for name, n in (("cpu", cpu_millis), ("memory", MIB)) if n}
    assert effective_requests(as_kept(pod)) == effective_requests(pod)


def test_a_resize_of_the_pod_touches_only_what_the_pod_as_a_whole_asks() -> None:
    status = {"resources": {"requests": {"cpu": "3", "memory": "9Mi"}}}
    pod = wire([c("1", {"memory": "1Mi"})], resources=LEVEL, status=status)
    assert effective_requests(pod).amounts == {"cpu": 3000, "memory": MIB}


def test_what_no_node_has_is_cut_off_where_sums_over_pods_cannot_wrap() -> None:
    absurd = wire([c("8E", {"memory": "8Ei"}), c("", {"memory": "8Ei"})], resources={"requests": {"memory": "8Ei"}})
    assert effective_requests(absurd).amounts == {"cpu": MOST, "memory": MOST}
    assert effective_requests(absurd)[1:] == (MOST, MOST)


def test_an_amount_that_is_none_is_an_error() -> None:
    with pytest.raises(QuantityError, match="'much' is not a quantity"):
        effective_requests(wire([c("much")]))


@pytest.mark.parametrize(
    ("quantities", "expected"),
    [
        pytest.param(None, {}, id="none"),
        pytest.param({"cpu": "250m", "memory": "1k"}, {"cpu": 250, "memory": 1000}, id="cpu in millis"),
        pytest.param({"cpu": 2, "memory": 1.5}, {"cpu": 2000, "memory": 2}, id="numbers, rounded up"),
        pytest.param({"cpu": "1u", "x.com/dev": "500m"}, {"cpu": 1, "x.com/dev": 1}, id="less than one is one"),
    ],
)
def test_amounts_are_exact_integers(quantities: objects.Quantities | None, expected: dict[str, int]) -> None:
    assert amounts(quantities) == expected


@pytest.mark.parametrize(
    ("pod", "expected"),
    [
        pytest.param(wire([c()]), (100, 200 * MIB), id="a container that asks nothing counts as a small one"),
        pytest.param(wire([c(), c()]), (200, 400 * MIB), id="each of them"),
        pytest.param(wire([c("1")]), (1000, 200 * MIB), id="by resource"),
        pytest.param(wire([c("0", {"memory": "0"})]), (0, 0), id="zero is an ask"),
        pytest.param(
            wire([c("1", {"memory": "1Mi"})], overhead={"cpu": "1", "memory": "1Mi"}), (2000, 2 * MIB), id="overhead"
        ),
        pytest.param(wire([c()], resources={"requests": {"cpu": "1"}}), (1000, 200 * MIB), id="pod level"),
        pytest.param(
            wire([c("1", {"memory": "1Mi"}), c("1")], resources={"requests": {"cpu": "3"}}),
            (3000, MIB),
            id="pod level, and one container says the other",
        ),
        pytest.param(wire([c("1", {"memory": "1Mi"})], [c("2", {"memory": "0"})]), (2000, MIB), id="init containers"),
        pytest.param(
            wire([c("1", {"memory": "1Mi"})], status={"containerStatuses": [resized("c", {"cpu": "3"})]}),
            (3000, MIB),
            id="a resize",
        ),
    ],
)
def test_scoring_counts_what_is_asked_or_a_little(pod: objects.PodObject, expected: tuple[int, int]) -> None:
    assert effective_requests(pod)[1:] == expected
