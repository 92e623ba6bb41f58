"""For whom a node is left out, for how long, and what ends it."""

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from scheduler.pods.pod import Pod
from scheduler.state.kubelet_rejections import FIRST_S, LONGEST_S, MOST, RejectionLog
from tests.support.builders import pod

WEB = pod("web", 3)
OTHER = pod("other", 4)


def on(node: str, of: Pod = WEB) -> Pod:
    return replace(of, node_name=node)


@dataclass
class Told:
    changed: list[str] = field(default_factory=list)
    opened: list[str] = field(default_factory=list)
    rejections: RejectionLog = field(init=False)

    def __post_init__(self) -> None:
        self.rejections = RejectionLog(self.changed.append, self.opened.append)


def test_each_time_it_lasts_twice_as_long_up_to_five_minutes() -> None:
    rejections, now_s, lasted_s = Told().rejections, 0.0, []
    for _ in range(7):
        lasted_s.append(rejections.note(on("a"), "OutOfcpu", now_s))
        now_s += lasted_s[-1]
        rejections.expire(now_s)
        assert not rejections.reasons(WEB)
    assert lasted_s == [10, 20, 40, 80, 160, 300, 300]


@pytest.mark.parametrize(("later_s", "lasts_s"), [(LONGEST_S - 1, 2 * FIRST_S), (LONGEST_S, FIRST_S)])
def test_after_five_minutes_in_which_nothing_was_rejected_it_begins_again(later_s: float, lasts_s: float) -> None:
    rejections = Told().rejections
    until_s = rejections.note(on("a"), "OutOfcpu", 0.0)
    rejections.expire(until_s)
    assert rejections.note(on("a"), "OutOfcpu", until_s + later_s) == lasts_s


def test_who_looks_at_the_node_is_told_of_each_change() -> None:
    told = Told()
    told.rejections.note(on("a"), "OutOfcpu", 0.0)
    told.rejections.expire(FIRST_S - 0.1)
    assert (told.changed, told.opened) == (["a"], [])
    told.rejections.expire(FIRST_S)
    told.rejections.note(on("b"), "OutOfcpu", 30.0)
    told.rejections.started(on("b"))
    assert (told.changed, told.opened) == (["a", "b"], ["a", "b"])


def test_pods_that_were_on_their_way_are_one_failure() -> None:
    told = Told()
    lasts_s = [told.rejections.note(on("a"), "OutOfcpu", number / 10) for number in range(8)]
    assert lasts_s == pytest.approx([FIRST_S - number / 10 for number in range(8)])
    told.rejections.expire(FIRST_S)
    assert (told.opened, told.rejections.counted) == (["a"], {"OutOfcpu": 8})
    assert told.rejections.note(on("a"), "OutOfcpu", FIRST_S) == 2 * FIRST_S


def test_at_most_so_many_are_left_out_and_reasons_counted() -> None:
    told = Told()
    for number in range(MOST + 10):
        told.rejections.note(on(f"n{number}"), f"OutOf{number}", float(number))
    assert (len(told.rejections.reasons(WEB)), told.opened) == (MOST, [f"n{number}" for number in range(10)])
    assert (len(told.rejections.counted), told.rejections.counted.total()) == (33, MOST + 10)


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["note", "started", "expire"]),
            st.sampled_from("ab"),
            st.sampled_from([WEB, OTHER]),
            st.floats(0.0, 60.0),
        ),
        max_size=30,
    )
)
def test_a_node_is_left_out_from_its_last_rejection_until_its_time_is_over(
    steps: list[tuple[str, str, Pod, float]],
) -> None:
    told, now_s, until_s = Told(), 0.0, dict[tuple[str, str], float]()
    for what, node, of, later_s in steps:
        now_s += later_s
        told.rejections.expire(now_s)
        match what:
            case "note":
                until_s[of.key.name, node] = now_s + told.rejections.note(on(node, of), "OutOfcpu", now_s)
            case "started":
                told.rejections.started(on(node, of))
                until_s.pop((of.key.name, node), None)
        for one in (WEB, OTHER):
            expected = {node for (name, node), end_s in until_s.items() if name == one.key.name and end_s > now_s}
            assert set(told.rejections.reasons(one)) == expected
    next_s = told.rejections.next_s()
    assert all(next_s is not None and next_s <= end_s for end_s in until_s.values() if end_s > now_s)
