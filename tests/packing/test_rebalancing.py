"""The cases of docs/defragment.md, on a trace that is made up."""

import json
from pathlib import Path

import pytest

from e2e.packing.rebalancing import main
from tests.packing.builders import write_trace

# Two nodes of eight cards and six of two; a whole card, thirty times as often as eight.
NODES = (*[(100_000, 8, "A")] * 2, *[(100_000, 2, "B")] * 6)
PODS = (*[(1_000, 1, 1000, "")] * 30, (8_000, 8, 1000, ""))


@pytest.mark.parametrize("departures", [[], ["--departures"]])
def test_each_case_is_full_enough_and_told(
    departures: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "openb"
    folder.mkdir()
    write_trace(folder, NODES, PODS, {1: ("0000 0001", "0 1 2 3 4 5 6 7")})
    given = [str(folder), "--out", str(tmp_path / "out"), "--cases", "6", "--share", "0.7", *departures]
    assert main(given) == 0
    *cases, summary = capsys.readouterr().out.splitlines()
    found = [json.loads(line) for line in cases]
    assert [one["seed"] for one in found] == [1, 2, 3, 4, 5, 6]
    assert min(one["booked"] for one in found) >= 0.45
    fit = [one for one in found if one["moves"] is not None]
    assert summary.startswith(f"{len(fit)} of 6 fit after at most 10 moves")
    assert all(0 < one["moves"] <= 10 for one in fit)
    # Where pods have only come, the profile has kept the large nodes whole, until pods of eight cards have taken them.
    assert bool(fit) is bool(departures)
