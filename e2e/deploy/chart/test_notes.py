"""What helm says after an installation: what to do next, and what the API server rejects from then on."""

from collections.abc import Mapping
from typing import Any

import pytest

from e2e.deploy.chart.helm import CHART, IMAGE, RELEASE, Helm
from e2e.deploy.chart.variants import VARIANTS

ASKS = "new pods that request aliyun.com/gpu-mem"


def notes(helm: Helm, values: Mapping[str, Any]) -> str:
    said = helm("install", RELEASE, str(CHART), "--dry-run=client", values={**IMAGE, **values})
    return " ".join(said.partition("\nNOTES:\n")[2].split())


@pytest.mark.parametrize(
    ("variant", "said", "not_said"),
    [
        pytest.param(
            "default",
            [
                f"{ASKS} with nodeName, or without the schedulerName above: rejected.",
                "kubectl gpushare doctor",
                "schedulerName.action=Warn",
                "allocations that anyone but the scheduler writes",
            ],
            ["NVIDIA_VISIBLE_DEVICES", "misspelled"],
            id="by default",
        ),
        pytest.param(
            "every policy",
            [
                "without the schedulerName above: created, with a warning.",
                f"{ASKS} and set NVIDIA_VISIBLE_DEVICES: rejected.",
                "with a misspelled gpushare/ key: created, and noted in the audit log.",
            ],
            ["schedulerName.action=Warn"],
            id="every policy, each with an action",
        ),
        pytest.param(
            "a default scheduler name",
            [f"{ASKS} with nodeName, or with the schedulerName of a third scheduler: rejected."],
            ["without the schedulerName above"],
            id="a name by default",
        ),
        pytest.param(
            "while migrating",
            [
                "with the schedulerName of a third scheduler: rejected.",
                "the scheduler and the legacy components writes",
            ],
            ["without the schedulerName above"],
            id="while migrating",
        ),
        pytest.param(
            "no policies", ["kubectl gpushare doctor", "WARNING: without"], ["rejected", "in force"], id="no policies"
        ),
        pytest.param("an uninstall", ["helm uninstall"], ["kubectl gpushare doctor"], id="an uninstall"),
    ],
)
def test_the_notes_say_what_is_rejected_from_now_on_and_how_to_check(
    helm: Helm, variant: str, said: list[str], not_said: list[str]
) -> None:
    text = notes(helm, VARIANTS[variant])

    assert [one for one in said if one not in text] == []
    assert [one for one in not_said if one in text] == []
