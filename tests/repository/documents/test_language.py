"""Documents avoid words that readers stumble over, sentences of more than 40 words, and dates outside docs/evidence.

`language.json` has what is left in each document. Its numbers only shrink, and a document that it does not name has
none. The changelog has dates by its nature and is left out.
"""

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import pytest

from tests.support.documents.document_commands import DOCUMENTS
from tests.support.repository import ROOT

LEFT: Final[Mapping[str, Mapping[str, int]]] = json.loads(
    Path(__file__).with_name("language.json").read_text(encoding="utf-8")
)
EVIDENCE: Final = "docs/evidence/"
LONGEST: Final = 40
README_WORDS: Final = 650
FIRST_SCREEN_WORDS: Final = 125
# A change that mends a few places need not touch the file; one that mends many lowers the numbers.
SLACK: Final = 10
REJECTED: Final = re.compile(
    r"""\b(?:
        of[ ](?:which(?![ ](?:card|node))|whom) | whose[ ]kind | whoever | that[ ](?:is|are)[ ]none
        | (?:is|are)[ ]no[ ](?!longer\b|more\b)\w+
        | by[ ](?:CDI|helm|environment|itself|themselves) | beside
        | g(?:ive|ives|iven|ave|iving)[ ]away | t(?:ake|akes|aken|ook)[ ](?:\w+[ ])?back | removed?[ ]for
        | (?:is|are)[ ]gone | as[ ]a[ ]rule | at[ ]work
        | (?:is|are|was|were)[ ](?:not[ ])?there | for[ ](?:itself|themselves)
        | one[ ]after[ ]the[ ]other | mend(?:s|ed)?
    )\b | [,;:.][ ]else\b | ,[ ]since\b""",
    re.IGNORECASE | re.VERBOSE,
)
DATE: Final = re.compile(r"\b20\d\d-\d\d-\d\d\b")
NOT_PROSE: Final = re.compile(r"^ *```.*?^ *```|<!--.*?-->", re.MULTILINE | re.DOTALL)
ITEM: Final = re.compile(r"^\s*(?:[-*]|\d+\.) ")
END: Final = re.compile(r"[.!?][\"')*_]*(?=\s|$)")


def prose(text: str) -> str:
    """Text without fenced code, comments and targets of links; code within a sentence is one word."""
    without = re.sub(r"\]\([^)]*\)", "]", NOT_PROSE.sub("", text))
    return re.sub(r"`[^`]+`", "code", without)


def paragraphs(text: str) -> Iterator[str]:
    """Paragraphs and items of lists, each on one line; no tables and no headings."""
    collected: list[str] = []
    for line in [*text.splitlines(), ""]:
        if collected and (not line.strip() or ITEM.match(line) or line.startswith(("#", "|"))):
            yield " ".join(collected)
            collected = []
        if line.strip() and not line.startswith(("#", "|", "    ")):
            collected.append(ITEM.sub("", line, count=1).strip())


def long_sentences(text: str) -> list[str]:
    """Sentences of more than 40 words."""
    sentences = (sentence for one in paragraphs(text) for sentence in END.split(one))
    return [sentence for sentence in sentences if len(sentence.split()) > LONGEST]


def found(name: str, text: str) -> dict[str, list[str]]:
    """By kind: what the document has of it."""
    said = prose(text)
    joined = re.sub(r"\s+", " ", said)
    return {
        "words": [match[0] for match in REJECTED.finditer(joined)],
        "long sentences": long_sentences(said),
        "dates": [] if name.startswith(EVIDENCE) else DATE.findall(said),
    }


ALL: Final = {
    path.relative_to(ROOT).as_posix(): found(path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8"))
    for path in DOCUMENTS
}


@pytest.mark.parametrize("name", ALL)
def test_a_document_has_no_more_of_it_than_is_listed(name: str) -> None:
    listed = LEFT.get(name, {})
    assert {kind: places for kind, places in ALL[name].items() if len(places) > listed.get(kind, 0)} == {}


def test_the_list_shrinks_with_the_documents() -> None:
    assert {name for name in LEFT if name not in ALL} == set()
    numbers = {name: {kind: len(places) for kind, places in ALL[name].items()} for name in LEFT}
    assert {
        (name, kind): f"write {numbers[name][kind]}"
        for name, listed in LEFT.items()
        for kind, number in listed.items()
        if numbers[name][kind] < number - SLACK
    } == {}


def test_the_first_page_is_short_and_its_first_screen_fits_a_window() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    first_screen = prose(text.partition("\n| ")[0])
    assert len(text.split()) <= README_WORDS
    assert len(first_screen.split()) <= FIRST_SCREEN_WORDS


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("two replicas, of which one schedules", ["of which"], id="of which"),
        pytest.param("It is no container. It is no longer there.", ["is no container"], id="is no"),
        pytest.param("the card is\ngone, as a rule", ["is gone", "as a rule"], id="over the end of a line"),
        pytest.param("It waits; else it fails, since it must.", ["; else", ", since"], id="else and since"),
        pytest.param("`by itself` and\n```text\nbeside\n```\n", [], id="in code"),
        pytest.param("It is taken back, and given away.", ["taken back", "given away"], id="away and back"),
        pytest.param("It runs alongside others, because it must.", [], id="nothing"),
    ],
)
def test_rejected_words_are_found(text: str, expected: list[str]) -> None:
    assert found("README.md", text)["words"] == expected


def test_a_long_sentence_is_found_in_a_paragraph_and_in_an_item_of_a_list() -> None:
    long, short = "word " * 41 + ".", "word " * 40 + "."
    assert len(long_sentences(f"{short}\n{short}\n\n{long}\n\n- {short}\n- {long}\n")) == 2
    assert long_sentences(f"# {long}\n\n| {long} |\n") == []


def test_dates_belong_into_evidence() -> None:
    text = "Measured on 2026-01-02; `2026-01-03` is an example."
    assert found("README.md", text)["dates"] == ["2026-01-02"]
    assert found(f"{EVIDENCE}a.md", text)["dates"] == []
