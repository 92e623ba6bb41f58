import gzip
from pathlib import Path
from typing import Final

import pytest

from config.clusterfile.arrivals import COLUMNS, Arrival, PodAsk, read_arrivals, write_arrivals
from config.settings.mistakes import ConfigurationError

HEAD: Final = "name,at_s,runs_s,cpu_milli,memory_mib,units_per_card,cards,models,priority\n"


def arrivals_in(folder: Path, text: str) -> list[Arrival]:
    file = folder / "arrivals.csv"
    file.write_text(text, encoding="utf-8")
    return read_arrivals(file)


def mistakes_in(folder: Path, text: str) -> list[str]:
    """Without the name of the file."""
    with pytest.raises(ConfigurationError) as caught:
        arrivals_in(folder, text)
    assert {mistake.source for mistake in caught.value.mistakes} == {str(folder / "arrivals.csv")}
    return [f"{mistake.path}: {mistake.message}".removeprefix(": ") for mistake in caught.value.mistakes]


def test_a_line_is_a_pod_and_pods_come_by_time(tmp_path: Path) -> None:
    text = f"{HEAD}late,2.5,60,500,1024,10,2,A|B,7\nearly,1,,0,0,0,0,,\n\nsecond,1,0,500,1024,10,2,A|B,7\n"
    asked = PodAsk(500, 1024, 10, 2, ("A", "B"), 7)
    assert arrivals_in(tmp_path, text) == [
        Arrival("early", 1.0, None, PodAsk(0, 0, 0, 0)),
        Arrival("second", 1.0, 0.0, asked),
        Arrival("late", 2.5, 60.0, asked),
    ]


def test_columns_may_be_in_any_order_and_three_of_them_away(tmp_path: Path) -> None:
    text = "\ufeffcards, units_per_card, name, cpu_milli, memory_mib, at_s\n1, 3, p, 4, 5, 6\n"
    assert arrivals_in(tmp_path, text) == [Arrival("p", 6.0, None, PodAsk(4, 5, 3, 1))]


def test_pods_that_ask_the_same_share_it(tmp_path: Path) -> None:
    one, other = arrivals_in(tmp_path, f"{HEAD}a,0,,1,1,1,1,,\nb,0,,1,1,1,1,,\n")
    assert one.ask is other.ask


@pytest.mark.parametrize("name", ["arrivals.csv", "arrivals.csv.gz"])
def test_what_is_written_is_read_again(tmp_path: Path, name: str) -> None:
    arrivals = [
        Arrival("a", 0.0, None, PodAsk(1, 2, 0, 0)),
        Arrival("b.c", 0.1, 12_345_678.0, PodAsk(1, 2, 3, 4, ("A", "B"), -5)),
    ]
    write_arrivals(tmp_path / name, arrivals)
    assert read_arrivals(tmp_path / name) == arrivals


@pytest.mark.parametrize(
    ("line", "mistake"),
    [
        ("P,0,,1,1,1,1,,", "line 2, name: expected a pod name of lowercase letters, digits, - and ., found 'P'"),
        (",0,,1,1,1,1,,", "line 2, name: expected a pod name of lowercase letters, digits, - and ., found ''"),
        ("p,soon,,1,1,1,1,,", "line 2, at_s: expected a number of seconds from 0 to 1e9, found 'soon'"),
        ("p,nan,,1,1,1,1,,", "line 2, at_s: expected a number of seconds from 0 to 1e9, found 'nan'"),
        ("p,1.1e9,,1,1,1,1,,", "line 2, at_s: expected a number of seconds from 0 to 1e9, found '1.1e9'"),
        ("p,0,1e12,1,1,1,1,,", "line 2, runs_s: expected a number of seconds from 0 to 1e9, found '1e12'"),
        ("p,0,-1,1,1,1,1,,", "line 2, runs_s: expected a number of seconds from 0 to 1e9, found '-1'"),
        ("p,0,,1.5,1,1,1,,", "line 2, cpu_milli: expected a whole number from 0 to 2147483647, found '1.5'"),
        ("p,0,,1,1,1,257,,", "line 2, cards: expected a whole number from 0 to 256, found '257'"),
        ("p,0,,1,1,1,0,,", "line 2, cards: expected both units_per_card and cards, or neither; found 1 and 0"),
        ("p,0,,1,1,0,2,,", "line 2, cards: expected both units_per_card and cards, or neither; found 0 and 2"),
        ("p,0,,1,1,0,0,A,", "line 2, models: expected none for a pod without cards"),
        ("p,0,,1,1,1,1,A||B,", "line 2, models: expected model names separated by |, found 'A||B'"),
        ("p,0,,1,1,1,1,,high", "line 2, priority: expected a whole number, found 'high'"),
        ("p,0,,1", "line 2: expected 9 values, found 4"),
    ],
)
def test_a_mistake_names_line_and_column_and_what_was_expected(tmp_path: Path, line: str, mistake: str) -> None:
    assert mistakes_in(tmp_path, f"{HEAD}{line}\n") == [mistake]


def test_all_mistakes_are_told_at_once_the_first_50_of_them(tmp_path: Path) -> None:
    lines = "".join(f"p{number},x,,1,1,1,1,,\n" for number in range(60))
    found = mistakes_in(tmp_path, HEAD + lines)
    assert len(found) == 51
    assert found[49].startswith("line 51, at_s: ")
    assert found[50] == "10 more mistakes"


def test_two_pods_of_one_name_are_a_mistake(tmp_path: Path) -> None:
    text = f"{HEAD}p,0,,1,1,1,1,,\nq,0,,1,1,1,1,,\np,0,,1,1,1,1,,\n"
    assert mistakes_in(tmp_path, text) == ["line 4, name: expected each name once; 'p' is also on line 2"]


def test_a_wrong_head_is_told_and_nothing_else(tmp_path: Path) -> None:
    assert mistakes_in(tmp_path, "name,at_s,cpu_milli,memory_mib,unit_per_card,cards,cards\nP,x\n") == [
        "line 1, unit_per_card: unknown column; did you mean units_per_card?",
        "line 1, cards: appears more than once",
        f"line 1: expected a header with the columns {', '.join(COLUMNS[:6])}; missing: units_per_card",
    ]


def test_a_file_that_cannot_be_read_is_a_mistake(tmp_path: Path) -> None:
    cut = tmp_path / "cut.csv.gz"
    cut.write_bytes(gzip.compress(HEAD.encode())[:-9])
    for file, message in ((tmp_path / "away.csv", "No such file or directory"), (cut, "end-of-stream marker")):
        with pytest.raises(ConfigurationError) as caught:
            read_arrivals(file)
        assert str(file) in str(caught.value)
        assert message in str(caught.value)
    plain = tmp_path / "plain.csv.gz"
    plain.write_text(HEAD, encoding="utf-8")
    with pytest.raises(ConfigurationError, match="cannot be read: Not a gzipped file"):
        read_arrivals(plain)
