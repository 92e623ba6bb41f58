"""One public class name for one thing, and docstrings that begin with a noun or a verb.

`words.json` holds what is left to mend: names that stand for two things, and the number of docstrings of each folder
whose first word says nothing. Both lists only shrink.
"""

import ast
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.support.repository import ROOT

PROGRAMS: Final = ("config", "deviceplugin", "scheduler")
LEFT: Final = json.loads(Path(__file__).with_name("words.json").read_text(encoding="utf-8"))
REJECTED: Final = frozenset(
    [
        "As",
        "Everybody",
        "It",
        "Meanwhile",
        "Nobody",
        "Of",
        "Somebody",
        "Such",
        "They",
        "Those",
        "What",
        "Whatever",
        "Who",
        "Whoever",
        "Whose",
    ]
)
REJECTED_PAIRS: Final = frozenset({("The", "one"), ("The", "ones"), ("The", "same"), ("The", "very")})
# A branch that mends a few docstrings need not touch the file; one that mends many lowers the number.
SLACK: Final = 10


def modules(folder: str) -> Iterator[ast.Module]:
    """Modules below a folder of this checkout, parsed, but for those that protoc wrote."""
    for path in sorted((ROOT / folder).rglob("*.py")):
        if not path.name.endswith("_pb2.py"):
            yield ast.parse(path.read_text(encoding="utf-8"))


def doubles() -> list[str]:
    """Public class names that two modules of the product define."""
    names = Counter(
        node.name
        for folder in PROGRAMS
        for module in modules(folder)
        for node in module.body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    )
    return sorted(name for name, times in names.items() if times > 1)


def says_nothing_first(docstring: str) -> bool:
    """Whether the docstring begins with a word that names no thing and no action."""
    first, second = (*(word.strip(".,:;") for word in docstring.split()[:2]), "", "")[:2]
    return first in REJECTED or (first, second) in REJECTED_PAIRS


def rejected_docstrings(folder: str) -> int:
    """Number of docstrings below `folder` with a rejected first word."""
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    return sum(
        says_nothing_first(ast.get_docstring(node) or "")
        for module in modules(folder)
        for node in ast.walk(module)
        if isinstance(node, documented)
    )


def test_a_public_class_name_stands_for_one_thing() -> None:
    assert doubles() == LEFT["class names that stand for two things"]


@pytest.mark.parametrize("folder", LEFT["docstrings with a rejected first word"])
def test_docstrings_begin_with_a_noun_or_a_verb(folder: str) -> None:
    listed, found = LEFT["docstrings with a rejected first word"][folder], rejected_docstrings(folder)

    assert found <= listed, "name the thing first: 'Cards that ...', 'Why ...', 'Return ...'"
    assert found >= listed - SLACK, f"some were mended: write {found} into words.json"


@pytest.mark.parametrize(
    ("docstring", "rejected"),
    [
        pytest.param("Those that wait.", True, id="those"),
        pytest.param("As the port.", True, id="as"),
        pytest.param("The one to look at.", True, id="the one"),
        pytest.param("What: it is.", True, id="with a mark behind it"),
        pytest.param("Pods that wait.", False, id="a noun"),
        pytest.param("The cards.", False, id="a noun with its article"),
        pytest.param("Wait.", False, id="a verb alone"),
        pytest.param("", False, id="no docstring"),
    ],
)
def test_the_first_word_is_told_from_the_rest(docstring: str, *, rejected: bool) -> None:
    assert says_nothing_first(docstring) is rejected
