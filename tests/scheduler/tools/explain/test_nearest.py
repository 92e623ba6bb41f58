"""Which nodes are told first: those where the pod could run at all."""

from config.protocol import names
from scheduler.kube.objects import Taint
from scheduler.tools.explain.answers import Explanation
from tests.support.builders import card, wire_node
from tests.support.explaining import explained, lines, preempts, prose, there, waits, world


def order(answer: Explanation) -> list[str]:
    return [node.name for node in answer.nearest]


def test_nodes_with_large_cards_come_before_small_ones_and_nodes_without_cards_come_last() -> None:
    of = world(small=[15], useful=[16, 16])
    of.nodes.add(wire_node("cpu"))
    for index in range(2):
        there(of, f"full-{index}", 16, "useful", index)
    there(of, "some", 8, "small", 0)
    waits(of, "train", 16)
    answer = explained(of, "train")
    assert order(answer) == ["useful", "small", "cpu"]
    assert "Node useful: GpuShare" in prose(answer)
    (of_cpu,) = [line for line in lines(answer, 120) if line.startswith("cpu ")]
    assert of_cpu.split()[1] == "-"


def test_nodes_that_its_selector_excludes_come_after_those_that_it_allows() -> None:
    of = world()
    of.nodes.add(wire_node("a-empty", [16], labels={"gpu": "old"}))
    of.nodes.add(wire_node("b-full", [16], labels={"gpu": "new"}))
    there(of, "full", 16, "b-full", 0)
    waits(of, "train", 16, nodeSelector={"gpu": "new"})
    assert order(explained(of, "train")) == ["b-full", "a-empty"]


def test_nodes_without_the_models_that_it_asks_for_come_after_those_with_them() -> None:
    of = world()
    of.nodes.add(wire_node("a-other", [card(0, 32, model="L4")]))
    of.nodes.add(wire_node("b-full", [card(0, 16, model="H100")]))
    there(of, "full", 16, "b-full", 0)
    waits(of, "train", 16, annotations={names.CARD_MODELS: "H100"})
    assert order(explained(of, "train")) == ["b-full", "a-other"]


def test_a_node_from_which_pods_can_leave_comes_before_one_that_is_closed() -> None:
    of = world()
    of.nodes.add(wire_node("a-tainted", [16], taints=(Taint("team", "NoSchedule", "other"),)))
    of.nodes.add(wire_node("b-full", [16]))
    there(of, "full", 16, "b-full", 0)
    waits(of, "train", 16)
    assert order(explained(of, "train")) == ["b-full", "a-tainted"]


def test_the_node_that_it_is_nominated_to_comes_before_all_others() -> None:
    of = world(near=[16], kept=[16])
    there(of, "some", 2, "near", 0)
    there(of, "going", 16, "kept", 0)
    preempts(of, "train", 16, "kept", "going", priority=9)
    assert order(explained(of, "train")) == ["kept", "near"]


def test_of_a_pod_without_gpu_memory_nodes_without_cards_are_as_good_as_others() -> None:
    of = world()
    of.nodes.add(wire_node("b-gpu", [16], cpu="1"))
    of.nodes.add(wire_node("a-cpu", cpu="1"))
    waits(of, "web", requests={"cpu": "8"})
    assert order(explained(of, "web")) == ["a-cpu", "b-gpu"]
