"""`explain`: which pod is meant, and how it stands."""

import asyncio

import pytest

from scheduler.tools.cli.answering import named_pod
from scheduler.tools.cli.manifests import Unanswerable
from tests.support.builders import wire_pod
from tests.support.explaining import asked, explained, explained_new, lines, there, waits, world

# How the pod stands


def test_a_pod_that_fits_is_told_where_it_would_go() -> None:
    of = world(a=[16, 4])
    answer = explained_new(of, "p", 3)
    assert (answer.state, answer.message, answer.reasons) == ("fits", "", ())
    assert lines(answer)[0] == "Pod default/p would be placed now: on node a, card 1 (3)."


def test_a_bound_pod_is_told_where_it_is() -> None:
    of = world(a=[16, 16])
    there(of, "p", 3, "a", 1)
    where = "It is on node a, with 3 GiB of card 1 (advisory)."
    assert lines(explained(of, "p")) == ["Pod default/p is bound.", where]


def test_a_bound_pod_whose_cards_are_not_known_is_told_so() -> None:
    of = world(a=[16])
    waits(of, "p", 3)
    of.pods.bind("default", "p", "a")
    assert lines(explained(of, "p"), 200)[1] == (
        "It is on node a; its cards cannot be read, so its request counts against each of them."
    )


def test_a_finished_pod_is_told_so() -> None:
    of = world(a=[16])
    there(of, "p", 3, "a", 0)
    of.pods.finish("default", "p")
    assert lines(explained(of, "p")) == [
        "Pod default/p is finished.",
        "It is Succeeded and no longer holds any resources.",
    ]


def test_a_gated_pod_is_told_which_gate_holds_it() -> None:
    of = world(a=[16])
    answer = explained_new(of, "p", 3, schedulingGates=[{"name": "kueue.x-k8s.io/admission"}])
    assert answer.state == "gated"
    assert "kueue.x-k8s.io/admission" in answer.words[0]


FORGOTTEN = (
    "It requests GPU memory, but its schedulerName is default-scheduler, which assigns no cards: "
    "add `schedulerName: gpushare-scheduler` to its spec."
)


def test_a_forgotten_scheduler_name_is_told_with_the_line_to_add() -> None:
    of = world(a=[16])
    answer = explained_new(of, "p", 3, scheduler="default-scheduler")
    assert (answer.state, answer.words[0]) == (
        "foreign",
        FORGOTTEN,
    )
    assert lines(answer)[0] == "Pod default/p would with this scheduler be placed now: on node a, card 0 (3)."


def test_an_unknown_pod_is_answered_by_those_that_it_may_be() -> None:
    of = world(a=[16])
    there(of, "worker-0", 3, "a", 0)
    with pytest.raises(Unanswerable, match="there is no pod worker-1 in namespace default; did you mean worker-0"):
        explained(of, "worker-1")
    with pytest.raises(Unanswerable, match="there is no pod worker-0 in namespace ml; did you mean -n default"):
        asyncio.run(asked(of).explained("ml", "worker-0"))
    assert asyncio.run(asked(of).explained("", "worker-0")).pod == "default/worker-0"
    elsewhere = asked(of)
    elsewhere.namespace = "ml"
    with pytest.raises(Unanswerable, match="there is no pod worker-0 in namespace ml"):
        asyncio.run(elsewhere.explained("", "worker-0"))


# The command line


@pytest.mark.parametrize(
    ("pod", "namespace", "expected"),
    [
        pytest.param("p", "", ("", "p"), id="a name"),
        pytest.param("p", "ml", ("ml", "p"), id="with a namespace"),
        pytest.param("pod/p", "ml", ("ml", "p"), id="as kubectl prints it"),
        pytest.param("pods/p", "", ("", "p"), id="in the plural"),
        pytest.param("ml/p", "", ("ml", "p"), id="as we print it"),
        pytest.param("ml/p", "ml", ("ml", "p"), id="twice the same namespace"),
    ],
)
def test_a_pod_is_named_as_kubectl_and_our_own_output_name_it(
    pod: str, namespace: str, expected: tuple[str, str]
) -> None:
    assert named_pod("gpushare-scheduler", pod, namespace) == expected


def test_mistakes_are_said_before_anything_else() -> None:
    of = world(a=[16])
    waits(of, "p", 3, annotations={"gpushare/exlusive": "true"})
    words = "Annotation gpushare/exlusive is unknown and has no effect: did you mean gpushare/exclusive?"
    assert explained(of, "p").words[0] == words
    assert asked(of).what_if(wire_pod("p", 3, annotations={"gpushare/exlusive": "true"}), 1).words[0] == words
