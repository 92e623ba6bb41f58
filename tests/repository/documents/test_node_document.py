"""`docs/node.md` names everything that an operator can meet: differences, errors of cards, variables."""

import re

import pytest

from config.protocol import environment, names
from deviceplugin.health.rules import APPLICATION_XIDS, HARDWARE_XIDS
from deviceplugin.reconcile.drift import DriftKind
from deviceplugin.uninstall.look import OURS
from tests.support.repository import ROOT

DOCUMENT = (ROOT / "docs" / "node.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("kind", DriftKind)
def test_every_drift_kind_is_explained_with_the_reason_of_its_event(kind: DriftKind) -> None:
    reason = "GPU" + "".join(word.capitalize() for word in kind.split("-"))
    assert f"| `{kind}` | `{reason}` |" in DOCUMENT


@pytest.mark.parametrize(
    ("xids", "also"),
    [
        pytest.param(APPLICATION_XIDS, "ignoredXids", id="errors of applications"),
        pytest.param(HARDWARE_XIDS, "hardwareXids", id="errors of hardware"),
    ],
)
def test_the_xids_of_each_class_are_listed(xids: dict[int, str], also: str) -> None:
    assert f"| {', '.join(map(str, sorted(xids)))}, and `{also}` |" in DOCUMENT


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
    assert f"| `{variable}` |" in DOCUMENT


def test_what_an_uninstall_removes_of_the_state_directory_is_what_is_documented() -> None:
    """docs/decisions/0082."""
    (section,) = re.findall(r"^## State directory\n(.*?)^## ", DOCUMENT, re.MULTILINE | re.DOTALL)
    documented = {name.partition("/")[0] for name in re.findall(r"^\| `([^`]+)` \|", section, re.MULTILINE)}
    assert documented == {name for name in OURS if not name.startswith(".")}
