import os
import re
import sys
from pathlib import Path

import pytest

from scheduler.tools.simulate.comparison import Outcome
from scheduler.tools.simulate.plot import NoPlot, check_plot, plot, quartiles


def outcome(config: str, run: str, *shares: float | None) -> Outcome:
    return Outcome(
        config=config,
        run=run,
        pods=1,
        asked=100.0,
        at_100=None,
        at_end=1.0,
        first=None,
        unplaced=0,
        ended=0,
        average=0.0,
        fragmented=0.0,
        shares=shares,
        took_s=0.0,
    )


def test_the_curve_is_the_median_of_what_is_not_booked_between_the_quartiles() -> None:
    runs = [(0.0, 10.0), (0.0, 20.0, 5.0), (0.0, 40.0), (0.0, None), (0.0, 30.0)]
    assert quartiles(runs) == ([0, 1, 2], [100.0, 67.5, 95.0], [100.0, 75.0, 95.0], [100.0, 82.5, 95.0])


@pytest.mark.parametrize(("name", "begins"), [("curve.png", b"\x89PNG"), ("curve.svg", b"<?xml")])
def test_a_plot_is_drawn_the_same_every_time(tmp_path: Path, name: str, begins: bytes) -> None:
    outcomes = [outcome("one", "1", 0.0, 1.0, 2.0), outcome("two", "1", 0.0, 1.0, 1.0)]
    for again in ("a", "b"):
        (tmp_path / again).mkdir()
        check_plot(tmp_path / again / name)
        plot(outcomes, tmp_path / again / name, "a title")
    assert (tmp_path / "a" / name).read_bytes().startswith(begins)
    assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


@pytest.mark.parametrize(
    ("file", "message"),
    [
        pytest.param("away/curve.png", "there is no folder {folder}/away", id="no folder"),
        pytest.param("text/curve.png", "there is no folder {folder}/text", id="below a file"),
        pytest.param(f"{'long' * 99}.png", "may not be written: File name too long", id="a name that is too long"),
        pytest.param("folder.png", "expected a file, found a folder", id="a folder"),
    ],
)
def test_a_place_that_holds_no_plot_is_said_before_anything_is_simulated(
    tmp_path: Path, file: str, message: str
) -> None:
    (tmp_path / "text").touch()
    (tmp_path / "folder.png").mkdir()
    with pytest.raises(
        NoPlot, match=re.escape(f"{tmp_path / file}") + ":? " + re.escape(message.format(folder=tmp_path))
    ):
        check_plot(tmp_path / file)


@pytest.mark.parametrize("closed", [".", "curve.png"], ids=["the folder", "the file"])
def test_a_place_that_may_not_be_written_is_said_before_anything_is_simulated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, closed: str
) -> None:
    if closed == "curve.png":
        (tmp_path / closed).touch()
    # The tests may run as root, who may write everywhere.
    monkeypatch.setattr(os, "access", lambda path, _: Path(path) != tmp_path / closed)
    with pytest.raises(NoPlot, match="may not be written"):
        check_plot(tmp_path / "curve.png")


def test_a_plot_that_is_there_may_be_drawn_again(tmp_path: Path) -> None:
    (tmp_path / "curve.png").touch()
    check_plot(tmp_path / "curve.png")


def test_where_matplotlib_is_not_installed_that_is_said_before_anything_is_simulated(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(NoPlot, match=r"--plot needs matplotlib: pip install 'gpushare-scheduler\[plot\]'"):
        check_plot(Path("curve.png"))
