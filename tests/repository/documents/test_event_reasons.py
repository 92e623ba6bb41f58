"""docs/protocol.md lists every Event that the programs write, by its reason."""

import ast
import re
from collections.abc import Iterator
from typing import Final

import pytest

from deviceplugin.reconcile.drift import DriftKind
from tests.support.repository import ROOT

TEXT: Final = (ROOT / "docs/protocol.md").read_text(encoding="utf-8")
ROWS: Final = re.findall(r"^\| [\w, ]+ \| (`.+?`) \| (?:Normal|Warning) \|", TEXT, re.MULTILINE)
LISTED: Final = {reason for cell in ROWS for reason in re.findall(r"`(\w+)`", cell)}
# Where the reason is among the arguments of what writes an Event.
PLACES: Final = {"NodeEvent": 0, "_event": 1, "about": 3}


def reasons(text: str) -> Iterator[str]:
    """The constants that a module gives as the reason of an Event."""
    tree = ast.parse(text)
    constants = {
        node.target.id: node.value.value
        for node in ast.walk(tree)
        if isinstance(node, ast.AnnAssign)
        and isinstance(node.target, ast.Name)
        and isinstance(node.value, ast.Constant)
    }
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        given = [node.args[place] for place in (PLACES.get(name, 99),) if place < len(node.args)]
        given += [word.value for word in node.keywords if word.arg == "reason" and name in {"Problem", "event"}]
        for value in given:
            if isinstance(value, ast.Constant):
                yield str(value.value)
            elif isinstance(value, ast.Name) and value.id in constants:
                yield str(constants[value.id])


def written(folder: str) -> set[str]:
    return {found for path in (ROOT / folder).rglob("*.py") for found in reasons(path.read_text(encoding="utf-8"))}


@pytest.mark.parametrize(("folder", "example"), [("scheduler", "WaitingForVolumes"), ("deviceplugin", "GPUNotReady")])
def test_every_reason_is_in_the_table(folder: str, example: str) -> None:
    found = written(folder)
    assert example in found
    assert found - LISTED == set()


def test_every_kind_of_drift_is_in_the_table() -> None:
    assert {"GPU" + kind.title().replace("-", "") for kind in DriftKind} <= LISTED
