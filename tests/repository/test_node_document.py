"""`docs/node.md` names everything that an operator can meet: metrics, differences, errors of cards, variables."""

import re

import pytest

from config.protocol import environment, names
from config.protocol.inventory import Health
from deviceplugin.driver.cards import DriverCard, Reading
from deviceplugin.health.rules import APPLICATION_XIDS, HARDWARE_XIDS
from deviceplugin.reconcile.drift import DriftKind
from deviceplugin.report import metrics, shown
from tests.support.repository import ROOT

DOCUMENT = (ROOT / "docs" / "node.md").read_text(encoding="utf-8")
WORDS = set(re.findall(r"`([^`\n]+)`", DOCUMENT))


def shown_names() -> list[str]:
    """Every metric that `/metrics` can have, as it is scraped, less the prefix that the document says once."""
    card = DriverCard(index=0, uuid="GPU-0", model="SIM", memory_mib=1024)
    found = metrics.NodeMetrics("n1", 1024, dcgm=True)
    found.show_cards(
        [
            shown.ShownCard(
                card,
                1,
                0,
                Health.HEALTHY,
                Reading(used_mib=0, processes=(), utilisation=0, temperature_c=40, power_w=60.0),
            )
        ]
    )
    families = list(found.registry.collect())
    scraped = [f"{family.name}_total" if family.type == "counter" else family.name for family in families]
    return [name.removeprefix("gpushare_device_plugin_") for name in scraped]


@pytest.mark.parametrize("name", shown_names())
def test_every_metric_is_explained(name: str) -> None:
    assert name in WORDS


def test_no_metric_is_explained_that_is_not_there() -> None:
    rows = re.findall(
        r"^\| ((?:`(?:DCGM_|card_|container_memory_|xids_|call_|refusals_)\w+`(?:, )?)+)", DOCUMENT, re.MULTILINE
    )
    explained = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    assert explained
    assert explained <= set(shown_names())


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
