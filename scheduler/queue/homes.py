"""Consistency check: each pod is in the collection of its state, and in no other."""

from collections.abc import Collection, Mapping, Sequence

from scheduler.pods.pod import expect
from scheduler.queue.entry import Entry, PodState


def homes_are_right(entries: Mapping[str, Entry], homes: Sequence[tuple[PodState, Collection[Entry]]]) -> None:
    """Raise TransitionError for the first misplaced pod. entries: by UID. homes: the collections of each state."""
    for uid, entry in entries.items():
        name = f"pod {entry.pod.key}"
        found = [state for state, pods in homes if entry in pods]
        expect(entry.pod.key.uid == uid, f"{name} is kept as {uid}")
        # A pod in flight is in no collection.
        expect((found or [PodState.IN_FLIGHT]) == [entry.state], f"{name} is {entry.state.name}, kept as {found}")
        expect(bool(entry.gate) == (entry.state is PodState.GATED), f"{name} is gated by {entry.gate!r}")
    kept = sum(len(pods) for _, pods in homes)
    expected = sum(entry.state is not PodState.IN_FLIGHT for entry in entries.values())
    expect(kept == expected, f"{kept} pods that are not in flight are kept; expected {expected}")
