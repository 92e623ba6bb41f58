"""The journal: the first allocation of a pod stays, whatever is written later, also over a restart."""

import json
from pathlib import Path

import pytest

from config.protocol import names
from deviceplugin.allocation.journal import First, Journal, PodRequests
from deviceplugin.allocation.pods import FirstCards

FIRST = {names.ALLOCATION: '{"0":{"0":3}}', names.CARDS: '{"0":"GPU-a"}', names.MEM_IDX: "0"}
LIVED = FIRST | {names.MEM_ASSIGNED: "true", names.MEM_ASSUME_TIME: "7"}
OTHER = {names.ALLOCATION: '{"0":{"1":3}}', names.CARDS: '{"1":"GPU-b"}', names.MEM_IDX: "0"}


@pytest.mark.parametrize(
    ("later", "expected"),
    [
        pytest.param(FIRST, First(FIRST), id="the same"),
        pytest.param(
            {**OTHER, "note": "n"}, First({**FIRST, "note": "n"}, (names.ALLOCATION, names.CARDS)), id="another card"
        ),
        pytest.param({}, First(FIRST, (names.ALLOCATION, names.CARDS, names.MEM_IDX)), id="removed"),
        pytest.param(FIRST | {names.INIT_ALLOCATION: "{}"}, First(FIRST, (names.INIT_ALLOCATION,)), id="added to"),
        pytest.param(LIVED, First(LIVED), id="what changes in a pod's life"),
    ],
)
def test_the_first_allocation_is_followed_and_a_change_reported(
    tmp_path: Path, later: dict[str, str], expected: First
) -> None:
    journal = Journal(tmp_path)
    assert journal.first("u", FIRST) == First(FIRST)
    assert journal.first("u", later) == expected


def test_a_pod_without_allocation_may_get_its_first_one_later(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    assert journal.first("u", {"note": "n"}) == First({"note": "n"})
    assert journal.first("u", FIRST) == First(FIRST)
    assert journal.first("u", OTHER).changed


def test_an_allocation_that_says_nothing_may_still_be_corrected(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    broken = {names.ALLOCATION: "nonsense"}
    assert journal.first("u", broken, readable=False) == First(broken)
    assert journal.first("u", FIRST) == First(FIRST)


def test_the_legacy_schedulers_index_is_an_allocation(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    journal.first("u", {names.MEM_IDX: "0"})
    assert journal.first("u", {names.MEM_IDX: "1"}) == First({names.MEM_IDX: "0"}, (names.MEM_IDX,))


def test_it_remembers_over_a_restart(tmp_path: Path) -> None:
    before = Journal(tmp_path / "new" / "directory")
    before.first("u", FIRST)
    before.save()
    again = Journal(tmp_path / "new" / "directory")
    assert again.problem == ""
    assert again.first("u", OTHER).annotations == FIRST


def test_a_pod_that_is_gone_is_forgotten_also_over_a_restart(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    for uid in ("u", "v"):
        journal.first(uid, FIRST)
    journal.keep(["v", "w"])
    for after in (journal, Journal(tmp_path)):
        assert after.first("u", OTHER) == First(OTHER)
        assert after.first("v", OTHER).annotations == FIRST
        after.keep(["v"])


def test_what_the_pod_asked_when_its_card_was_chosen_stays(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    asked = PodRequests("2", exclusive=False)
    assert journal.first("u", FIRST, asked) == First(FIRST, requests=asked)
    later = journal.first("u", FIRST, PodRequests("1", exclusive=True))
    assert later == First(FIRST, (names.GPU_COUNT, names.EXCLUSIVE), asked)


def test_the_first_cards_of_each_container_stay_also_over_a_restart(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    journal.decide("u", FirstCards(1024, {"c0": {"GPU-x": 3}}))
    assert journal.first("u", FIRST).cards is None
    journal.decide("u", FirstCards(1024, {"c0": {"GPU-a": 3}}))
    journal.decide("u", FirstCards(256, {"c0": {"GPU-b": 12}}))
    journal.save()
    for after in (journal, Journal(tmp_path)):
        assert after.first("u", FIRST).cards == FirstCards(1024, {"c0": {"GPU-a": 3}})


def test_a_journal_of_version_1_is_read_and_what_it_lacks_is_what_is_said_now(tmp_path: Path) -> None:
    (tmp_path / "journal.json").write_text(json.dumps({"version": 1, "pods": {"u": FIRST}}))
    journal = Journal(tmp_path)
    now = PodRequests("2", exclusive=True)
    with_unit = FIRST | {names.UNIT_MIB: "1024"}
    assert (journal.problem, journal.first("u", with_unit, now)) == ("", First(with_unit, requests=now))
    journal.save()
    assert Journal(tmp_path).first("u", with_unit).changed == (names.GPU_COUNT, names.EXCLUSIVE)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param("", "cannot be read", id="empty"),
        pytest.param('{"version":1,"pods":{"u":', "cannot be read", id="cut off"),
        pytest.param('{"version":1,"pods":{"u":3}}', "cannot be read", id="another shape"),
        pytest.param('{"version":3,"pods":{}}', "version 3; expected 2", id="newer"),
    ],
)
def test_a_broken_file_is_reported_and_replaced(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "journal.json").write_text(text)
    journal = Journal(tmp_path)
    assert message in journal.problem
    assert journal.first("u", FIRST) == First(FIRST)
    journal.save()
    assert Journal(tmp_path).problem == ""


def test_a_file_that_cannot_be_read_is_reported_and_done_without(tmp_path: Path) -> None:
    (tmp_path / "journal.json").mkdir()
    journal = Journal(tmp_path)
    assert "cannot be read" in journal.problem
    assert journal.first("u", FIRST) == First(FIRST)


def test_what_cannot_be_written_is_still_remembered(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    (tmp_path / ".journal.json.tmp").mkdir()
    journal.first("u", FIRST)
    with pytest.raises(OSError, match="directory"):
        journal.save()
    assert journal.first("u", OTHER).annotations == FIRST
    (tmp_path / ".journal.json.tmp").rmdir()
    journal.save()
    assert Journal(tmp_path).first("u", OTHER).annotations == FIRST


def test_what_is_saved_is_not_saved_again(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    journal.save()
    assert list(tmp_path.iterdir()) == []
    journal.first("u", FIRST)
    journal.save()
    number = (tmp_path / "journal.json").stat().st_ino
    journal.first("u", OTHER)
    journal.save()
    assert (tmp_path / "journal.json").stat().st_ino == number


def test_a_limit_that_an_earlier_plugin_did_not_record_is_the_one_that_is_said_now(tmp_path: Path) -> None:
    """Nodes with such a plugin exist while an update is half done, and the scheduler already takes pods with limits."""
    pods = {"u": {"annotations": FIRST, "requests": {}}}
    (tmp_path / "journal.json").write_text(json.dumps({"version": 2, "pods": pods}))
    now, later = {**FIRST, names.GPU_MEM_LIMIT: "8"}, {**FIRST, names.GPU_MEM_LIMIT: "80"}
    journal = Journal(tmp_path)
    assert journal.first("u", now) == First(now)
    journal.save()
    assert Journal(tmp_path).first("u", later) == First(now, (names.GPU_MEM_LIMIT,))


def test_a_limit_that_is_added_later_is_a_change(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    journal.first("u", FIRST)
    journal.save()
    later = {**FIRST, names.GPU_MEM_LIMIT: "80"}
    assert Journal(tmp_path).first("u", later) == First(FIRST, (names.GPU_MEM_LIMIT,))
