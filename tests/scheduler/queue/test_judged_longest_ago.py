"""Whose reason is looked at next."""

from scheduler.queue.entry import Entry
from scheduler.queue.judged_longest_ago import EVERY_S, JudgedLongestAgo
from tests.support.builders import pod


def entry(name: str, namespace: str = "x") -> Entry:
    return Entry(pod=pod(name, namespace=namespace))


def taken(judged: JudgedLongestAgo, now_s: float) -> list[str]:
    found = []
    while (one := judged.take(now_s)) is not None:
        entry, ago_s = one
        assert ago_s >= EVERY_S
        found.append(entry.pod.key.name)
    return found


def test_nobody_is_due_before_the_time_and_everybody_once_then() -> None:
    judged = JudgedLongestAgo()
    judged.add(entry("a"), 0.0)
    judged.add(entry("b"), 1.0)
    assert taken(judged, EVERY_S - 0.1) == []
    assert taken(judged, EVERY_S) == ["a"]
    assert taken(judged, EVERY_S + 1) == ["b"]
    assert taken(judged, 2 * EVERY_S + 1) == ["a", "b"]


def test_who_was_judged_longest_ago_is_first() -> None:
    judged = JudgedLongestAgo()
    again = entry("again")
    judged.add(again, 0.0)
    judged.add(entry("other"), 0.0)
    judged.discard(again)
    judged.add(again, 5.0)
    assert taken(judged, 5.0 + EVERY_S) == ["other", "again"]


def test_the_namespaces_take_turns() -> None:
    judged = JudgedLongestAgo()
    for number in range(100):
        judged.add(entry(f"theirs-{number}", "theirs"), 0.0)
    judged.add(entry("mine", "mine"), 0.0)
    judged.add(entry("mine too", "mine"), 0.0)
    assert taken(judged, EVERY_S)[:4] == ["theirs-0", "mine", "theirs-1", "mine too"]


def test_who_has_left_is_none_of_them_and_may_come_back() -> None:
    judged = JudgedLongestAgo()
    only, other = entry("only"), entry("other", "y")
    for one in (only, other):
        judged.add(one, 0.0)
    assert taken(judged, EVERY_S) == ["only", "other"]
    judged.discard(only)
    judged.discard(only)
    assert (len(judged), taken(judged, 2 * EVERY_S)) == (1, ["other"])
    judged.add(only, 2 * EVERY_S)
    assert taken(judged, 3 * EVERY_S) == ["other", "only"]
