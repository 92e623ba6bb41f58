"""Pods that come without end do not keep the ledger audit and re-evaluation from running."""

import pytest

from config.settings.scheduler import SchedulerConfiguration
from scheduler.core.build import build_engine
from scheduler.core.effects import Audited, Reevaluated
from scheduler.pods.pod import Pod
from tests.support.builders import pod, wire_node
from tests.support.placing import NOW_NS

# A decision for a new template about 5,000 nodes.
STEP_S = 0.02


@pytest.mark.parametrize("effect", [Audited, Reevaluated])
def test_a_stream_of_pods_of_one_namespace_does_not_end_work_in_the_background(effect: type) -> None:
    settings = {"reserveAfter": 0, "ledgerAuditPeriod": "10s"}
    built, _ = build_engine(SchedulerConfiguration.model_validate(settings))
    built.budgets_listed()
    built.audit.begin(0.0)
    built.node_changed(wire_node("n0", [8]))
    built.pod_waiting(pod("victim", 16), 0.0)
    now_s, number = 0.0, 0
    found, last = list[object](), list[Pod]()
    while now_s < 120.0:
        if number == 300:
            built.node_changed(wire_node("n0", [8], unschedulable=True))  # its message is no longer true
        while len(last) < 2:  # 50 new pods a second, at most two at once
            last.append(pod(f"p{number}", 16, namespace="busy", requests={"cpu": f"{1 + number}m"}))
            built.pod_waiting(last[-1], now_s)
            number += 1
        step = built.step(now_s, NOW_NS)
        now_s += STEP_S
        found += [one for one in (step.effects if step else ()) if isinstance(one, effect)]
        if step is not None and step.effects:
            built.pod_gone(last.pop(0).key.uid)
    assert found
