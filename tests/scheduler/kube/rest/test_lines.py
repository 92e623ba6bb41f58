from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from scheduler.kube.rest.lines import LineSplitter


def split(chunks: list[bytes]) -> list[bytes]:
    splitter = LineSplitter()
    return [line for chunk in chunks for line in splitter.feed(chunk)]


@given(
    lines=st.lists(st.binary(min_size=1).filter(lambda line: b"\n" not in line)),
    cuts=st.lists(st.integers(min_value=0, max_value=400)),
)
def test_lines_are_the_same_wherever_the_chunks_end(lines: list[bytes], cuts: list[int]) -> None:
    text = b"".join(line + b"\n" for line in lines)
    ends = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    chunks = [text[start:end] for start, end in pairwise(ends)]

    assert split(chunks) == lines


def test_a_line_that_is_not_complete_waits_for_its_end() -> None:
    splitter = LineSplitter()

    assert splitter.feed(b"one\ntw") == [b"one"]
    assert splitter.feed(b"o") == []
    assert splitter.feed(b"\n") == [b"two"]


def test_a_long_line_passes_in_many_small_pieces() -> None:
    line = b"x" * 1_600_000

    assert split([line[start : start + 100] for start in range(0, len(line), 100)] + [b"\n"]) == [line]


def test_empty_lines_are_left_out() -> None:
    assert split([b"\n\n", b"a\n\n"]) == [b"a"]
