"""What the doctor says of a node: the verdict of each check, and what to do."""

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from deviceplugin.doctor.checks import as_text, encode, examined
from deviceplugin.doctor.facts import Examination, Facts, Finding, NodeFacts, PodFacts, Verdict
from deviceplugin.driver.cards import CardReading, DriverCard
from deviceplugin.driver.cuda import CudaAnswer
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
    cuda={"GPU-a": CudaAnswer(0)},
    readings={"GPU-a": CardReading(used_mib=0, persistent=True)},
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


def test_a_card_in_mig_mode_is_named_and_nothing_is_to_be_done() -> None:
    found = says(with_card("healthy", "mig"), "cards")
    assert (found.verdict, found.remedy) == (Verdict.OK, "")
    assert found.found.endswith("none out of use; in MIG mode, only their instances are shared: card 0 (GPU-a)")


LACKING = "card GPU-a cannot be injected into containers: there is no CDI spec of kind nvidia.com/gpu"
STRANGER = PodFacts("ns/x", "default-scheduler", "", scheduled=False)


def case(name: str, facts: Facts, check: str, found: str, remedy: str, *, verdict: Verdict = Verdict.FAILED) -> Any:  # noqa: ANN401 - pytest's
    return pytest.param(facts, check, verdict, found, remedy, id=name)


def warned(name: str, facts: Facts, check: str, found: str, remedy: str) -> Any:  # noqa: ANN401 - as above
    return case(name, facts, check, found, remedy, verdict=Verdict.WARNING)


OLD_LIBRARY = replace(WELL, driver_problem="the cards: NVML returned '…': the driver was replaced; restart …")
UNKNOWN = Verdict.UNKNOWN
MODPROBE, COMPUTE = "nvidia-modprobe -u -c=0", "NVIDIA_DRIVER_CAPABILITIES=compute,utility"
NO_CUDA = CudaAnswer(lacking="libcuda.so.1: cannot open shared object file")


def answered(answer: CudaAnswer) -> Facts:
    return replace(WELL, cuda={"GPU-a": answer})


def with_reading(facts: Facts = WELL, **values: Any) -> Facts:  # noqa: ANN401 - fields of a reading
    return replace(facts, readings={"GPU-a": CardReading(**{"used_mib": 0, "persistent": True, **values})})


UNREADY = with_reading(answered(NO_CUDA), fabric="not-started")
FORGETS = with_reading(persistent=False)
DENIED = replace(
    with_reading(absent=("TotalEccErrors: no",)), cards=(replace(WELL.cards[0], absent=("NumaNodeId: no",)),)
)
NO_WAY = replace(WELL, lacking=LACKING, nvidia_runtime=False)
OTHER_MODE = with_status(mode="environment", runtime_class="nvidia")
REBOOTED = with_status(drift=(DriftStatus("without-devices", "pod ns/p"),))
OLD_KUBELET = "v1.33.13: KubeletPodResourcesGet is off by default before 1.34"


@pytest.mark.parametrize(
    ("facts", "check", "verdict", "found", "remedy"),
    [
        case(
            "no NVML",
            replace(
                WELL, driver="", cards=(), driver_problem="the cards: NVML returned 'NVML Shared Library Not Found'"
            ),
            "driver",
            "Shared Library Not Found",
            "kubectl apply -k deploy/optional/nvidia-runtime-class",
        ),
        case("the library is older than the driver", OLD_LIBRARY, "driver", "was replaced", "delete the plugin's pod"),
        case("upgraded", with_status(driver="570.12"), "driver", "the node has 580.95.05", "delete the"),
        case("no card", replace(WELL, cards=()), "driver", "lists no cards", "nvidia-smi -L"),
        warned("no runtime", replace(WELL, nvidia_runtime=False), "runtime", "does not run the plugin", ""),
        case(
            "no injection mode",
            NO_WAY,
            "libcuda",
            LACKING,
            "nvidia-ctk cdi generate",
        ),
        case("cdi, no spec", replace(WELL, lacking=LACKING, mode="cdi"), "libcuda", LACKING, "nvidia-ctk"),
        case("cdi before, no spec", replace(WELL, lacking=LACKING), "libcuda", LACKING, "nvidia-cdi-refresh"),
        warned("one card of some", replace(WELL, lacking=LACKING, some=True), "libcuda", LACKING, "nvidia-ctk"),
        warned(
            "other mode", with_status(mode="environment"), "libcuda", "would now choose cdi", "delete its pod, or wait"
        ),
        case(
            "uncovered",
            with_card("suspect", "no-way-in"),
            "cards",
            "no-way-in",
            "(see libcuda): on the node, run systemctl restart",
        ),
        warned("bad", replace(WELL, spec_problems=("/etc/cdi/x.yaml: bad",)), "libcuda", "x.yaml", "fix or remove"),
        case("not to be known", replace(WELL, driver=""), "libcuda", "does not answer", "", verdict=Verdict.UNKNOWN),
        case(
            "uvm", answered(CudaAnswer(999)), "cuda", "card 0 (GPU-a): cuInit returned 999: /dev/nvidia-uvm", MODPROBE
        ),
        case("no nodes", answered(CudaAnswer(100)), "cuda", "cuInit returned 100", "ls -l /dev/nvidia*"),
        case("fabric", answered(CudaAnswer(802)), "cuda", "the fabric manager is not running", "nvidia-fabricmanager"),
        case("cuInit hangs", answered(CudaAnswer(detail="not within 20 s")), "cuda", "not within 20 s", "dmesg"),
        case("libcuda", answered(NO_CUDA), "cuda", "cannot be tested here: libcuda.so.1", COMPUTE, verdict=UNKNOWN),
        case("none asked", replace(WELL, cuda={}), "cuda", "was not tested", "", verdict=UNKNOWN),
        case("no driver", replace(WELL, driver=""), "cuda", "the driver does not answer", "", verdict=UNKNOWN),
        case("fabric alone", UNREADY, "cuda", "the NVSwitch fabric is not-started", "nvidia-fabricmanager"),
        warned("persistence", FORGETS, "persistence", "off on card 0 (GPU-a)", "nvidia-smi -pm 1"),
        warned("no facts", DENIED, "cards", "card 0 (GPU-a): NumaNodeId: no; TotalEccErrors: no", "dmesg"),
        case("elsewhere", replace(WELL, missing={"/x/kubelet.sock": "what"}), "kubelet", "/x/kubelet.sock", "is the"),
        case("damaged", replace(WELL, checkpoint_problem="cannot be read"), "kubelet", "cannot", "restart"),
        warned(
            "old kubelet",
            with_node(kubelet_version="v1.33.13"),
            "kubelet",
            OLD_KUBELET,
            "enable this feature gate of the kubelet",
        ),
        case(
            "silent",
            replace(WELL, status=None, status_problem="refused"),
            "plugin",
            "refused",
            "--field-selector spec.nodeName=n1; then kubectl -n kube-system logs POD",
        ),
        case("not registered", with_status(registered=False, problems=("why",)), "plugin", "why", "above"),
        warned("problems", with_status(problems=("why",)), "plugin", "why", "docs/node-reference.md"),
        warned("label", with_node(labels={}), "node", "no label", "kubectl label node n1"),
        case("no inventory", with_node(announced=False), "node", "inventory", "announce.failed"),
        case("nothing", with_node(allocatable=0), "node", "capacity 15, allocatable 0", "see"),
        case("no rights", with_node(problem="403"), "node", "403", "rights", verdict=Verdict.UNKNOWN),
        case(
            "past the scheduler",
            with_node(pods=(STRANGER,)),
            "pods",
            "ns/x (schedulerName default-scheduler)",
            "schedulerName: gpushare-scheduler and without nodeName",
        ),
        case(
            "runtime class of the pods",
            OTHER_MODE,
            "pods",
            "without runtimeClassName nvidia: ns/p",
            "add runtimeClassName: nvidia",
        ),
        case("GSP", with_card("unhealthy", "xid-119"), "cards", "xid-119", "GSP timeout: gpushare"),
        case("bus", with_card("unhealthy", "xid-79"), "cards", "xid-79", "reboot the machine"),
        case("reset", with_card("unhealthy", "xid-48"), "cards", "xid-48", "release CARD"),
        warned(
            "just started",
            with_card("suspect", "cuda-untried"),
            "cards",
            "the plugin is still testing CUDA",
            "in a minute",
        ),
        case("silent card", with_card("suspect", "silent"), "cards", "silent", "dmesg"),
        case("failing card", with_card("suspect", "failing"), "cards", "failing", "returns errors"),
        warned("reboot", REBOOTED, "drift", "without-devices: pod ns/p", "for example after a reboot"),
    ],
)
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
