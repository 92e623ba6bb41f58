"""Turns of Events and messages in the event queue."""

import pytest

from scheduler.dispatch.event_queue import EventQueue, Unwritten
from scheduler.kube.port import ApiError, ApiSilent, ApiThrottled, EventRecord
from tests.support.builders import event_record

MOST_EVENTS = 6
MOST_IN_FLIGHT = 16


class Desk:
    """An event queue with a clock of its own."""

    def __init__(self) -> None:
        self.now_s = 1000.0
        self.queue = EventQueue(MOST_EVENTS, MOST_IN_FLIGHT, lambda: self.now_s)

    def puts(self, *names: str) -> list[str]:
        """Add Events `namespace/name`; returns the names of those that are dropped for them."""
        parts = (name.split("/") for name in names)
        events = [event_record(short, namespace=namespace, object_name=short) for namespace, short in parts]
        dropped = [self.queue.put_event(one.namespace, one) for one in events]
        return [one.object_name for one in dropped if isinstance(one, EventRecord)]

    def taken(self) -> Unwritten:
        entry = self.queue.take()
        assert isinstance(entry, Unwritten), f"nothing before {entry - self.now_s} s"
        return entry

    def ends(self, entry: Unwritten, error: ApiError | None = None) -> None:
        self.queue.answered(entry, error)
        self.queue.done(entry)

    def next(self) -> str:
        """Take the next entry and mark it written."""
        entry = self.taken()
        self.ends(entry)
        return name_of(entry)


def name_of(entry: Unwritten) -> str:
    assert not isinstance(entry.what, str)
    assert isinstance(entry.what, EventRecord)
    return f"{entry.namespace}/{entry.what.object_name}"


def test_namespaces_take_turns_and_each_keeps_its_order() -> None:
    desk = Desk()
    desk.puts("a/1", "a/2", "a/3", "b/1", "c/1")
    assert [desk.next() for _ in range(5)] == ["a/1", "b/1", "c/1", "a/2", "a/3"]
    assert len(desk.queue) == 0


def test_events_and_messages_of_a_namespace_take_turns() -> None:
    desk = Desk()
    desk.puts("a/1", "a/2")
    for uid in ("u", "v"):
        desk.queue.put_message("a", uid)
    taken = []
    for _ in range(4):
        entry = desk.taken()
        desk.ends(entry)
        taken.append(entry.what if isinstance(entry.what, str) else name_of(entry))
    assert taken == ["u", "a/1", "v", "a/2"]


def test_too_many_events_cost_the_oldest_one_of_who_has_most() -> None:
    desk = Desk()
    assert desk.puts("good/1", "bad/1", "bad/2", "bad/3", "bad/4", "bad/5") == []
    assert desk.puts("good/2", "bad/6") == ["1", "2"]
    assert [desk.next(), desk.next()] == ["good/1", "bad/3"]


def test_who_had_most_before_does_not_lose_for_that() -> None:
    desk = Desk()
    desk.puts(*(f"before/{number}" for number in range(5)))
    for _ in range(5):
        desk.next()
    assert desk.puts("a/1", "a/2", "a/3", "b/1", "b/2", "b/3") == []
    assert desk.puts("before/5", "b/4") == ["1", "1"]
    assert [desk.next() for _ in range(4)] == ["a/2", "b/2", "before/5", "a/3"]


def test_a_namespace_without_answers_has_one_request_and_others_go_on() -> None:
    desk = Desk()
    desk.puts("bad/1", "bad/2", "good/1", "good/2")
    hangs = desk.taken()
    assert name_of(hangs) == "bad/1"
    assert [desk.next(), desk.next()] == ["good/1", "good/2"]
    assert isinstance(desk.queue.take(), float)
    desk.now_s += 30
    desk.ends(hangs, ApiSilent("no answer"))
    next_s = desk.queue.take()
    assert isinstance(next_s, float)
    assert 0 < next_s - desk.now_s <= 5
    desk.now_s = next_s
    assert name_of(desk.taken()) == "bad/2"


def test_what_waits_for_a_namespace_without_answers_is_not_to_come_soon() -> None:
    desk = Desk()
    desk.puts("bad/1", "bad/2", "bad/3", "good/1")
    desk.ends(desk.taken(), ApiSilent("no answer"))
    assert (desk.queue.soon, len(desk.queue)) == (1, 3)


def test_a_throttled_entry_is_the_first_again_when_the_server_has_said() -> None:
    desk = Desk()
    desk.puts("a/1", "a/2")
    entry = desk.taken()
    desk.queue.answered(entry, ApiThrottled("slow", 20.0))
    desk.queue.put_back(entry)
    assert desk.queue.take() == desk.now_s + 20
    desk.now_s += 20
    assert [desk.next(), desk.next()] == ["a/1", "a/2"]


def test_a_message_that_is_put_back_does_not_come_twice() -> None:
    desk = Desk()
    desk.queue.put_message("a", "u")
    entry = desk.taken()
    desk.queue.put_message("a", "u")
    desk.queue.put_back(entry)
    assert len(desk.queue) == 1
    desk.ends(desk.taken())
    assert len(desk.queue) == 0


def test_messages_that_are_dropped_are_not_written_and_leave_nothing() -> None:
    desk = Desk()
    desk.puts("a/1")
    for namespace in ("a", "b"):
        desk.queue.put_message(namespace, "u")
        desk.queue.put_message(namespace, "v")
    desk.queue.drop_message("b", "u")
    desk.queue.drop_messages()
    assert len(desk.queue) == 1
    assert desk.next() == "a/1"
    assert desk.queue.take() == float("inf")
    assert desk.queue.soon == 0


@pytest.mark.parametrize("namespaces", [100, 1000])
def test_however_many_namespaces_get_no_answers_the_next_entry_is_found_in_small_steps(namespaces: int) -> None:
    desk = Desk()
    desk.queue = EventQueue(10 * namespaces, MOST_IN_FLIGHT, lambda: desk.now_s)
    for number in range(namespaces):
        desk.puts(f"bad-{number}/1", f"bad-{number}/2")
    throttled = 0
    while throttled < namespaces:
        if isinstance(entry := desk.queue.take(), Unwritten):
            throttled += 1
            desk.queue.answered(entry, ApiThrottled("slow", 30.0))
            desk.queue.put_back(entry)
    desk.puts("good/1")
    for _ in range(namespaces // 64 + 1):
        if isinstance(entry := desk.queue.take(), Unwritten):
            break
        assert entry <= desk.now_s + 0.01
    assert isinstance(entry, Unwritten)
    assert name_of(entry) == "good/1"
