"""The documents of the node and `docs/events.md` name what can be met: drift, errors of cards, variables, Events."""

import ast
import re
from collections.abc import Iterator
from typing import Final

import pytest

from config.protocol import environment, names
from deviceplugin.health.rules import APPLICATION_XIDS, HARDWARE_XIDS
from deviceplugin.reconcile.drift import DriftKind
from deviceplugin.uninstall.look import OURS
from tests.support.repository import ROOT

NODE, REFERENCE, CARDS = (
    (ROOT / "docs" / name).read_text(encoding="utf-8")
    for name in ("node.md", "node-reference.md", "nodes-and-cards.md")
)


@pytest.mark.parametrize("kind", DriftKind)
def test_every_drift_kind_is_explained_with_the_reason_of_its_event(kind: DriftKind) -> None:
    reason = "GPU" + "".join(word.capitalize() for word in kind.split("-"))
    assert f"| `{kind}` | `{reason}` |" in REFERENCE


@pytest.mark.parametrize(
    ("xids", "also"),
    [
        pytest.param(APPLICATION_XIDS, "ignoredXids", id="errors of applications"),
        pytest.param(HARDWARE_XIDS, "hardwareXids", id="errors of hardware"),
    ],
)
def test_the_xids_of_each_class_are_listed(xids: dict[int, str], also: str) -> None:
    assert f"| {', '.join(map(str, sorted(xids)))}, and `{also}` |" in CARDS


@pytest.mark.parametrize(
    "variable",
    [
        environment.VISIBLE_DEVICES,
        environment.CARD_UUIDS,
        environment.MEM_CONTAINER,
        environment.CGPU_DISABLE,
        names.MEM_IDX,
        names.MEM_POD,
        names.MEM_DEV,
    ],
)
def test_every_variable_of_a_container_is_listed(variable: str) -> None:
    assert f"| `{variable}` |" in NODE


def test_what_an_uninstall_removes_of_the_state_directory_is_what_is_documented() -> None:
    """docs/develop/decisions/0082."""
    (section,) = re.findall(r"^## State directory\n(.*?)^## ", REFERENCE, re.MULTILINE | re.DOTALL)
    documented = {name.partition("/")[0] for name in re.findall(r"^\| `([^`]+)` \|", section, re.MULTILINE)}
    assert documented == {name for name in OURS if not name.startswith(".")}


TEXT: Final = (ROOT / "docs/events.md").read_text(encoding="utf-8")
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
