"""What the doctor says of a node: the verdict of each check, and what to do."""

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from deviceplugin.doctor.checks import (
    Examination,
    Facts,
    Finding,
    NodeFacts,
    PodFacts,
    Verdict,
    as_text,
    encode,
    examined,
)
from deviceplugin.driver.cards import DriverCard
from deviceplugin.report.status import CardStatus, DevicePluginStatus, DriftStatus

STATUS = DevicePluginStatus(
    node="n1",
    mode="cdi",
    driver="580.95.05",
    unit_mib=1024,
    announced_units=15,
    registered=True,
    nvidia_runtime=True,
    cards=(CardStatus(0, "GPU-a", "M", 15360, 15, 0, "healthy"),),
)
WELL = Facts(
    node_name="n1",
    mode="auto",
    simulated=False,
    driver="580.95.05",
    cards=(DriverCard(index=0, uuid="GPU-a", model="M", memory_mib=15360),),
    nvidia_runtime=True,
    node=NodeFacts(
        labels={"gpushare": "true"},
        runtime_version="containerd://2.1.9",
        kubelet_version="v1.36.3",
        capacity=15,
        allocatable=15,
        announced=True,
        pods=(PodFacts("ns/p", "gpushare-scheduler", "", scheduled=True),),
    ),
    status=STATUS,
)


def says(facts: Facts, check: str) -> Finding:
    (found,) = (one for one in examined(facts).findings if one.check == check)
    return found


def with_status(**changes: Any) -> Facts:  # noqa: ANN401 - fields of a status
    return replace(WELL, status=msgspec.structs.replace(STATUS, **changes))


def with_node(**changes: Any) -> Facts:  # noqa: ANN401 - fields of the node
    return replace(WELL, node=replace(WELL.node, **changes))


def with_card(health: str, reason: str) -> Facts:
    return with_status(cards=(CardStatus(0, "GPU-a", "M", 15360, 15, 0, health, None, reason),))


def test_a_node_that_is_well_has_nothing_to_do() -> None:
    report = examined(WELL)
    assert {one.verdict for one in report.findings} == {Verdict.OK}
    assert (report.healthy, [one.remedy for one in report.findings if one.remedy]) == (True, [])


LACKING = "card GPU-a cannot be brought into a container: no CDI spec of kind nvidia.com/gpu is there"
STRANGER = PodFacts("ns/x", "default-scheduler", "", scheduled=False)
DOCTORS_CASES = [
    pytest.param(
        replace(WELL, driver="", cards=(), driver_problem="the cards: NVML answered 'NVML Shared Library Not Found'"),
        "driver",
        Verdict.FAILED,
        "Shared Library Not Found",
        "kubectl apply -k deploy/optional/nvidia-runtime-class",
        id="no NVML",
    ),
    pytest.param(
        replace(WELL, driver_problem="the cards: NVML answered '…': the driver was replaced; restart …"),
        "driver",
        Verdict.FAILED,
        "was replaced",
        "delete the plugin's pod",
        id="the library is older than the driver",
    ),
    pytest.param(
        with_status(driver="570.12"), "driver", Verdict.FAILED, "the node has 580.95.05", "delete the", id="upgraded"
    ),
    pytest.param(replace(WELL, cards=()), "driver", Verdict.FAILED, "names no card", "nvidia-smi -L", id="no card"),
    pytest.param(
        replace(WELL, nvidia_runtime=False), "runtime", Verdict.WARNING, "does not run the plugin", "", id="no runtime"
    ),
    pytest.param(
        replace(WELL, lacking=LACKING, nvidia_runtime=False),
        "libcuda",
        Verdict.FAILED,
        f"{LACKING}; and the NVIDIA runtime does not run this pod",
        "nvidia-ctk cdi generate",
        id="no injection mode",
    ),
    pytest.param(
        replace(WELL, lacking=LACKING, mode="cdi"), "libcuda", Verdict.FAILED, LACKING, "nvidia-ctk", id="cdi, no spec"
    ),
    pytest.param(
        replace(WELL, lacking=LACKING),
        "libcuda",
        Verdict.WARNING,
        "now environment would be",
        "delete",
        id="other mode",
    ),
    pytest.param(
        replace(WELL, spec_problems=("/etc/cdi/x.yaml: bad",)), "libcuda", Verdict.WARNING, "x.yaml", "repair", id="bad"
    ),
    pytest.param(replace(WELL, driver=""), "libcuda", Verdict.UNKNOWN, "does not answer", "", id="not to be known"),
    pytest.param(
        replace(WELL, missing={"/x/kubelet.sock": "what"}),
        "kubelet",
        Verdict.FAILED,
        "/x/kubelet.sock",
        "is the",
        id="-",
    ),
    pytest.param(
        replace(WELL, checkpoint_problem="cannot be read"), "kubelet", Verdict.FAILED, "cannot", "restart", id="damaged"
    ),
    pytest.param(
        with_node(kubelet_version="v1.33.13"),
        "kubelet",
        Verdict.WARNING,
        "v1.33.13: KubeletPodResourcesGet is off by default before 1.34",
        "switch this gate of the kubelet on",
        id="old kubelet",
    ),
    pytest.param(
        replace(WELL, status=None, status_problem="refused"),
        "plugin",
        Verdict.FAILED,
        "refused",
        "--field-selector spec.nodeName=n1; then kubectl -n kube-system logs POD",
        id="silent",
    ),
    pytest.param(
        with_status(registered=False, problems=("why",)), "plugin", Verdict.FAILED, "why", "above", id="not registered"
    ),
    pytest.param(with_status(problems=("why",)), "plugin", Verdict.WARNING, "why", "docs/node.md", id="problems"),
    pytest.param(with_node(labels={}), "node", Verdict.WARNING, "no label", "kubectl label node n1", id="label"),
    pytest.param(with_node(announced=False), "node", Verdict.FAILED, "inventory", "announce.failed", id="no inventory"),
    pytest.param(with_node(allocatable=0), "node", Verdict.FAILED, "capacity 15, allocatable 0", "see", id="nothing"),
    pytest.param(with_node(problem="403"), "node", Verdict.UNKNOWN, "403", "rights", id="no rights"),
    pytest.param(
        with_node(pods=(STRANGER,)),
        "pods",
        Verdict.FAILED,
        "ns/x (schedulerName default-scheduler)",
        "schedulerName: gpushare-scheduler and without nodeName",
        id="past the scheduler",
    ),
    pytest.param(
        with_status(mode="environment", runtime_class="nvidia"),
        "pods",
        Verdict.FAILED,
        "without runtimeClassName nvidia: ns/p",
        "add runtimeClassName: nvidia",
        id="runtime class of the pods",
    ),
    pytest.param(
        with_card("unhealthy", "xid-119"), "cards", Verdict.FAILED, "xid-119", "GSP time-out: gpushare", id="GSP"
    ),
    pytest.param(with_card("unhealthy", "xid-79"), "cards", Verdict.FAILED, "xid-79", "reboot the machine", id="bus"),
    pytest.param(with_card("unhealthy", "xid-48"), "cards", Verdict.FAILED, "xid-48", "release CARD", id="reset"),
    pytest.param(with_card("suspect", "silent"), "cards", Verdict.FAILED, "silent", "dmesg", id="silent card"),
    pytest.param(
        with_status(drift=(DriftStatus("without-devices", "pod ns/p"),)),
        "drift",
        Verdict.WARNING,
        "without-devices: pod ns/p",
        "as after a reboot",
        id="reboot",
    ),
]


@pytest.mark.parametrize(("facts", "check", "verdict", "found", "remedy"), DOCTORS_CASES)
def test_what_is_wrong_is_found_with_what_to_do(
    facts: Facts, check: str, verdict: Verdict, found: str, remedy: str
) -> None:
    finding = says(facts, check)
    assert finding.verdict is verdict
    assert found in finding.found
    assert remedy in finding.remedy


def test_of_many_the_first_are_named() -> None:
    pods = tuple(PodFacts(f"ns/x{number}", "other", "", scheduled=False) for number in range(7))
    assert says(with_node(pods=pods), "pods").found.endswith("ns/x4 (schedulerName other); and 2 more")


def test_simulated_cards_need_nothing_of_nvidias() -> None:
    facts = replace(WELL, simulated=True, nvidia_runtime=False, driver="simulated")
    facts = replace(facts, status=msgspec.structs.replace(STATUS, driver="simulated", simulated=True))
    assert {one.verdict for one in examined(facts).findings} == {Verdict.OK}


def test_the_report_is_a_table_with_what_to_do_below_and_json_for_programs() -> None:
    report = Examination(
        "n1", (Finding("driver", Verdict.OK, "580"), Finding("node", Verdict.FAILED, "no label", "label it"))
    )
    assert as_text(report) == (
        "Node n1: 1 ok, 1 failed\n\nCHECK   RESULT  FOUND\ndriver  ok      580\nnode    failed  no label\n\n"
        "What to do:\n  node: label it\n"
    )
    assert not report.healthy
    assert msgspec.json.decode(encode(report), type=Examination) == report
