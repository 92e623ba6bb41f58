"""Which requests a fault hits."""

import pytest

from scheduler.testing.cluster.faults import (
    Break,
    Fail,
    Faults,
    Overtaken,
    Request,
    RequestFault,
    Throttle,
    Verb,
    WatchBreaks,
)


def bind_request(about: str) -> Request:
    return Request(Verb.BIND, about)


def test_a_rule_hits_as_often_as_its_count_says() -> None:
    faults = Faults()
    rule = faults.add(Verb.BIND, Throttle(), count=2)

    hits = [faults.hitting(bind_request("ns/a")) is not None for _ in range(4)]

    assert (hits, rule.hits) == ([True, True, False, False], 2)


def test_a_rule_hits_only_what_its_predicate_names() -> None:
    faults = Faults()
    faults.add(Verb.BIND, Throttle(), when=lambda request: request.about == "ns/b")

    assert faults.hitting(bind_request("ns/a")) is None
    assert faults.hitting(bind_request("ns/b")) == Throttle()
    assert faults.hitting(Request(Verb.READ_POD, "ns/b")) is None


def test_chance_repeats_with_its_seed_and_keeps_its_share() -> None:
    def drawn(seed: int) -> list[bool]:
        faults = Faults(seed)
        faults.add(Verb.BIND, Throttle(), probability=0.25)
        return [faults.hitting(bind_request("ns/a")) is not None for _ in range(1000)]

    assert drawn(7) == drawn(7) != drawn(8)
    assert 180 < sum(drawn(7)) < 320


def test_the_first_rule_that_applies_decides() -> None:
    faults = Faults()
    first = faults.add(Verb.BIND, Throttle(), count=1)
    faults.add(Verb.BIND, Fail())

    assert [faults.hitting(bind_request("ns/a")) for _ in range(2)] == [Throttle(), Fail()]
    faults.remove(first)
    faults.clear()
    assert faults.hitting(bind_request("ns/a")) is None


@pytest.mark.parametrize(
    ("verb", "fault"),
    [
        pytest.param(Verb.BIND, WatchBreaks(Break.LOST), id="a bind has no stream to break"),
        pytest.param(Verb.WATCH, Overtaken(), id="nobody overtakes a watch"),
    ],
)
def test_a_fault_that_cannot_happen_to_a_verb_is_an_error(verb: Verb, fault: RequestFault) -> None:
    with pytest.raises(ValueError, match="cannot happen to"):
        Faults().add(verb, fault)
