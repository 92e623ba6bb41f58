"""docs/develop/architecture.md names files, names in files and layers: each of them is there."""

import ast
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final

import pytest

from tests.support.repository import ROOT

TEXT: Final = (ROOT / "docs/develop/architecture.md").read_text(encoding="utf-8")
# `a/b.py`, `a/b.py: name`, `a/b.py: Class.method, Class.other`.
REFERENCE: Final = re.compile(r"`([\w./-]+\.py)(?:: ([\w., ]+))?`")
A_FILE: Final = re.compile(r"[\w./-]*\w\.py\b")
PICTURE: Final = re.compile(r"```text\n(┌─ deviceplugin/.*?)```", re.DOTALL)
LONGEST_LINE: Final = 110
PURE: Final = "*"


def references(text: str) -> Iterator[tuple[str, str]]:
    """(path, name), "" where the file as a whole is meant."""
    for path, names in REFERENCE.findall(text):
        yield from ((path, name) for name in (names.split(", ") if names else [""]))


def bound(node: ast.stmt) -> Iterator[str]:
    """What a statement of a module or a class defines."""
    match node:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            yield name
        case ast.Assign(targets=targets):
            yield from (target.id for target in targets if isinstance(target, ast.Name))
        case ast.AnnAssign(target=ast.Name(id=name)):
            yield name


def defined(tree: ast.Module) -> Iterator[str]:
    """Every name of the module, and of its classes as `Class.name`."""
    for node in tree.body:
        yield from bound(node)
        if isinstance(node, ast.ClassDef):
            yield from (f"{node.name}.{name}" for inner in node.body for name in bound(inner))


@cache
def names_in(path: Path) -> frozenset[str]:
    return frozenset(defined(ast.parse(path.read_text(encoding="utf-8"))))


def missing(named: Iterable[tuple[str, str]]) -> list[str]:
    """The files that are not there, and the names that their files do not define."""
    return [
        f"{path}: {name}"
        for path, name in named
        if not (ROOT / path).is_file() or (name and name not in names_in(ROOT / path))
    ]


def boxes(picture: str) -> dict[str, list[str]]:
    """Title of each box -> its lines, without what is said of them. A box is found by the column of its left edge."""
    found: dict[str, list[str]] = {}
    open_at: dict[int, str] = {}
    for line in picture.splitlines():
        for title in re.finditer(r"┌─ (\w+)/", line):
            found[title[1]] = []
            open_at[title.start()] = title[1]
        for column, title_of in open_at.items():
            if line[column : column + 1] == "│":
                entry = re.split(r"\s{2,}", line[column + 1 :].split("│")[0].strip())[0]
                found[title_of] += [entry] if entry else []
    return found


def contracts() -> list[Mapping[str, Any]]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    listed: list[Mapping[str, Any]] = project["tool"]["importlinter"]["contracts"]
    return listed


def layers_of(package: str) -> list[frozenset[str]]:
    """From the top down."""
    layers: Sequence[str] = next(c["layers"] for c in contracts() if c.get("containers") == [package])
    return [frozenset(layer.split(" | ")) for layer in layers]


def drawn() -> dict[str, list[str]]:
    picture = PICTURE.search(TEXT)
    assert picture is not None
    return boxes(picture[1])


@pytest.mark.parametrize(
    ("text", "lacks"),
    [
        pytest.param("`scheduler/core/engine.py`", [], id="a file that is there"),
        pytest.param("`scheduler/core/attempts.py: Attempts.decide, Decision.queued`", [], id="a method and a field"),
        pytest.param("`scheduler/motor.py`", ["scheduler/motor.py: "], id="a file that is not there"),
        pytest.param(
            "`scheduler/core/engine.py: Motor`", ["scheduler/core/engine.py: Motor"], id="a name that is not there"
        ),
        pytest.param(
            "`scheduler/core/engine.py: Engine, Engine.start`",
            ["scheduler/core/engine.py: Engine.start"],
            id="one name of two",
        ),
    ],
)
def test_a_reference_to_what_is_not_there_is_found(text: str, lacks: list[str]) -> None:
    assert missing(references(text)) == lacks


def test_every_file_and_name_in_the_architecture_exists() -> None:
    assert missing(references(TEXT)) == []


def test_every_file_in_the_architecture_is_named_in_a_form_that_is_checked() -> None:
    assert len(A_FILE.findall(TEXT)) == len(REFERENCE.findall(TEXT)) > 0


@pytest.mark.parametrize("package", ["config", "scheduler", "deviceplugin"])
def test_the_picture_has_the_layers_of_the_import_contracts(package: str) -> None:
    shown = [frozenset(line.replace(PURE, "").split(" | ")) for line in drawn()[package]]
    assert shown == layers_of(package)


def test_the_picture_marks_the_packages_that_are_pure_as_a_whole() -> None:
    marked = {
        f"{package}.{name.removesuffix(PURE)}"
        for package, lines in drawn().items()
        for line in lines
        for name in line.split(" | ")
        if name.endswith(PURE)
    }
    pure = next(set(c["modules"]) for c in contracts() if c["name"].startswith("what decides"))
    assert marked == {module for module in pure if module.count(".") == 1}


def test_the_pictures_fit_a_narrow_window() -> None:
    in_pictures = [line for block in re.findall(r"```text\n(.*?)```", TEXT, re.DOTALL) for line in block.splitlines()]
    assert [line for line in in_pictures if len(line) > LONGEST_LINE] == []
