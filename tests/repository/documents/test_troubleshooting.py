"""docs/troubleshooting.md quotes what the programs print, and its first section links to all others."""

import ast
import re
from functools import cache
from typing import Final

import pytest

from deviceplugin.reconcile.drift import DriftKind
from tests.support.documents.anchors import anchor_of
from tests.support.repository import ROOT

TEXT: Final = (ROOT / "docs/troubleshooting.md").read_text(encoding="utf-8")
QUOTED: Final = [
    line
    for block in re.findall(r"^```text\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)
    for line in block.splitlines()
    if not line.startswith("0/")
]
(EXAMPLE,) = re.findall(r"^0/.*$", TEXT, re.MULTILINE)
HEADINGS: Final = re.findall(r"^## (.+)$", TEXT, re.MULTILINE)
SYMPTOMS: Final = [heading for heading in HEADINGS if heading not in {"Start here", "Check and undo"}]
# What is written in code, and in the policies.
PROGRAMS: Final = ("scheduler", "deviceplugin", "config")
POLICIES: Final = "deploy/manifests"
SHORTEST: Final = 4


@cache
def printed() -> str:
    """Every string of the programs but their docstrings, those with gaps in parts; and the policies."""
    found = []
    for program in PROGRAMS:
        for path in sorted((ROOT / program).rglob("*.py")):
            nodes = [*ast.walk(ast.parse(path.read_text(encoding="utf-8")))]
            documentation = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
            texts = (node for node in nodes if isinstance(node, ast.Constant) and id(node) not in documentation)
            found += [node.value for node in texts if isinstance(node.value, str)]
    found += [path.read_text(encoding="utf-8") for path in sorted((ROOT / POLICIES).glob("*.yaml"))]
    return "\n".join(found)


def reasons() -> set[str]:
    """Of Events."""
    of_drift = {"GPU" + "".join(word.capitalize() for word in kind.split("-")) for kind in DriftKind}
    return of_drift | set(printed().splitlines())


def parts(line: str) -> list[str]:
    """Of a message, what stands between the gaps, less what is too short to say anything."""
    return [part for part in re.split(r"…", line) if len(part.strip()) >= SHORTEST]


def test_messages_are_quoted() -> None:
    assert len(QUOTED) > 20
    assert all(parts(line) for line in QUOTED)


def is_printed(part: str) -> bool:
    """As one string of the programs, or as two of them one behind the other."""
    places = range(SHORTEST, len(part) - SHORTEST + 1)
    return part in printed() or any(part[:n] in printed() and part[n:] in printed() for n in places)


@pytest.mark.parametrize("line", QUOTED)
def test_a_quoted_message_is_one_that_the_programs_print(line: str) -> None:
    assert [part for part in parts(line) if not is_printed(part)] == []


@pytest.mark.parametrize(
    "line", ["the card has caught a cold", "node(s) have no GPU memory to share", "pod …: it did use … MiB of …"]
)
def test_a_message_that_nobody_prints_is_found(line: str) -> None:
    assert not all(is_printed(part) for part in parts(line))


def test_the_example_with_numbers_is_that_of_the_first_page() -> None:
    """What the messages of waiting pods are made of has tests of its own (tests/system/scheduling/scenarios)."""
    assert EXAMPLE in (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("reason", sorted(set(re.findall(r"`(GPU[A-Z]\w+|RejectedByKubelet|Mistake)`", TEXT))))
def test_the_events_are_there(reason: str) -> None:
    assert reason in reasons()


def test_every_symptom_is_in_the_first_section() -> None:
    first = TEXT.partition("\n## Start here\n")[2].partition("\n## ")[0]
    assert set(re.findall(r"\]\(#([\w-]+)\)", first)) == {*map(anchor_of, SYMPTOMS)}


def test_the_first_command_needs_nothing_installed() -> None:
    (first, *_) = re.findall(r"^```sh\n(.*)$", TEXT, re.MULTILINE)
    assert first.startswith("kubectl -n kube-system exec deploy/gpushare-scheduler -- gpushare-scheduler explain ")


@pytest.mark.parametrize("heading", SYMPTOMS)
def test_every_section_says_why_what_tells_and_what_to_do(heading: str) -> None:
    section = TEXT.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    assert re.match(r"\nYou see\b", section)
    assert all(mark in section for mark in ("**Why**", "**Command**", "**What to do**"))
