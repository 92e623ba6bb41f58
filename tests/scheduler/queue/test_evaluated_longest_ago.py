"""Order of background re-evaluation."""

from scheduler.queue.entry import Entry
from scheduler.queue.longest_waiting import EVERY_S, EvaluatedLongestAgo
from tests.support.builders import pod


def entry(name: str, namespace: str = "x") -> Entry:
    return Entry(pod=pod(name, namespace=namespace))


def taken(evaluated: EvaluatedLongestAgo, now_s: float) -> list[str]:
    found = []
    while (one := evaluated.take(now_s)) is not None:
        entry, ago_s = one
        assert ago_s >= EVERY_S
        found.append(entry.pod.key.name)
    return found


def test_nobody_is_due_before_the_time_and_everybody_once_then() -> None:
    evaluated = EvaluatedLongestAgo()
    evaluated.add(entry("a"), 0.0)
    evaluated.add(entry("b"), 1.0)
    assert taken(evaluated, EVERY_S - 0.1) == []
    assert taken(evaluated, EVERY_S) == ["a"]
    assert taken(evaluated, EVERY_S + 1) == ["b"]
    assert taken(evaluated, 2 * EVERY_S + 1) == ["a", "b"]


def test_who_was_evaluated_longest_ago_is_first() -> None:
    evaluated = EvaluatedLongestAgo()
    again = entry("again")
    evaluated.add(again, 0.0)
    evaluated.add(entry("other"), 0.0)
    evaluated.discard(again)
    evaluated.add(again, 5.0)
    assert taken(evaluated, 5.0 + EVERY_S) == ["other", "again"]


def test_the_namespaces_take_turns() -> None:
    evaluated = EvaluatedLongestAgo()
    for number in range(100):
        evaluated.add(entry(f"theirs-{number}", "theirs"), 0.0)
    evaluated.add(entry("mine", "mine"), 0.0)
    evaluated.add(entry("mine too", "mine"), 0.0)
    assert taken(evaluated, EVERY_S)[:4] == ["theirs-0", "mine", "theirs-1", "mine too"]


def test_who_has_left_is_none_of_them_and_may_come_back() -> None:
    evaluated = EvaluatedLongestAgo()
    only, other = entry("only"), entry("other", "y")
    for one in (only, other):
        evaluated.add(one, 0.0)
    assert taken(evaluated, EVERY_S) == ["only", "other"]
    evaluated.discard(only)
    evaluated.discard(only)
    assert (len(evaluated), taken(evaluated, 2 * EVERY_S)) == (1, ["other"])
    evaluated.add(only, 2 * EVERY_S)
    assert taken(evaluated, 3 * EVERY_S) == ["other", "only"]
