"""Checks the facts about a node, in the order in which a new node usually fails: docs/first-gpu-node.md. Pure."""

import re
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from config.protocol import names
from config.protocol.inventory import NO_INJECTION
from deviceplugin.cdi.mode import InjectionSupport, NoInjectionMode, mode_of
from deviceplugin.cdi.nvidia_spec import GENERATE
from deviceplugin.doctor.cuda_checks import cuda, persistence
from deviceplugin.doctor.facts import (
    FAILED,
    MOST_NAMED,
    OK,
    UNKNOWN,
    WARNING,
    Examination,
    Facts,
    Finding,
    Verdict,
    count,
    some,
)
from deviceplugin.doctor.isolation_checks import cgroup, hook, isolation, limits
from deviceplugin.driver.cards import MIG
from deviceplugin.driver.cuda import UNTRIED
from scheduler.kube import versions
from scheduler.process.terminal import columns, one_line, typed


def encode(report: Examination) -> bytes:
    """Return the report as JSON."""
    return msgspec.json.encode(report)


def as_text(report: Examination) -> str:
    """Return the report as text that ends with a line break."""
    counts = [(verdict, sum(one.verdict is verdict for one in report.findings)) for verdict in Verdict]
    told = ", ".join(f"{count} {verdict}" for verdict, count in counts if count)
    head = one_line(f"Node {report.node}: {told}")
    rows = [(one.check, one.verdict.value, one.found) for one in report.findings]
    todo = [one_line(f"  {one.check}: {one.remedy}") for one in report.findings if one.remedy]
    parts = [head, _table(("CHECK", "RESULT", "FOUND"), rows), "\n".join(["What to do:", *todo]) if todo else ""]
    return "\n\n".join(part for part in parts if part) + "\n"


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    return "\n".join(columns(heads, [[one_line(cell) for cell in row] for row in rows]))


_OVERLAY: Final = "kubectl apply -k deploy/optional/nvidia-runtime-class"
_LEAVE: Final = "Until then, do not delete the plugin's pod: the NVIDIA runtime may not start it while a card is lost"
_RESET: Final = "gpushare-device-plugin release CARD, then nvidia-smi --gpu-reset -i INDEX on the node"
_CLEAR: Final = "kubectl annotate node NODE gpushare/clear-health=UUID"
_DENIED: Final = "the card is still shared; if it is new or was reset, run dmesg | grep NVRM on the node"
_REPLACED: Final = "the driver was replaced"
_LONGEST_VERSION: Final = 64
# Still in use: a split card, and a card that the plugin is about to try.
_WELL: Final = frozenset({MIG, UNTRIED})
# Reason why a card is out of use -> remedy. Source of the XIDs: NVIDIA's XID catalog.
_REMEDIES: Final = (
    (
        re.compile(r"xid-(119|120)"),
        f"GSP timeout: {_RESET}; if it recurs, set NVreg_EnableGpuFirmware=0 or install a newer driver",
    ),
    (
        re.compile(r"lost|xid-79"),
        f"fallen off the bus: reboot the machine; if it recurs, check power, seating and hardware. {_LEAVE}",
    ),
    (re.compile(NO_INJECTION), f"no CDI spec injects it into containers (see libcuda): on the node, run {GENERATE}"),
    (re.compile(r"(cuda|fabric)-.*"), "see cuda"),
    (re.compile(r"silent"), "the driver does not answer for this card: run dmesg | grep NVRM on the node"),
    (re.compile(r"failing"), "the driver returns errors for this card: run dmesg | grep NVRM on the node"),
    (re.compile(r"xid-\d+|ecc|row-remap|recovery-.*"), f"{_RESET}; if the card is healthy, {_CLEAR}"),
)
_DRIFT: Final = {
    "without-devices": "admitted before the plugin was registered, for example after a reboot: delete the pod, or "
    "set evictUnregistered: true",
    "on-another-card": "delete the pod, or set evictMismatched: true",
    "unscheduled": "see pods, or set evictUnscheduled: true",
    "outside-use": "end the processes, or set announceOutsideUse: true",
}


def examined(facts: Facts) -> Examination:
    """Return the results of all checks."""
    return Examination(facts.node_name, tuple(check(facts) for check in _CHECKS))


def examined_driver(facts: Facts) -> Examination:
    """Return the results of the checks that need only the driver."""
    return Examination(facts.node_name, tuple(check(facts) for check in (_driver, cuda, persistence)))


def _driver(facts: Facts) -> Finding:
    def finding(verdict: Verdict, found: str, remedy: str = "") -> Finding:
        return Finding("driver", verdict, found, remedy)

    if facts.driver_problem and _REPLACED in facts.driver_problem:
        return finding(FAILED, facts.driver_problem, "delete the plugin's pod: its replacement uses the new library")
    if facts.driver_problem:
        remedy = (
            "make sure that nvidia-smi on the node lists the cards; then run the plugin's pod with the NVIDIA runtime"
        )
        return finding(FAILED, facts.driver_problem, f"{remedy}: {_OVERLAY} if it is not the default")
    if not facts.cards:
        return finding(
            FAILED, f"driver {facts.driver} lists no cards", "make sure that nvidia-smi -L on the node lists the cards"
        )
    told = facts.status.driver if facts.status else ""
    if told and told != facts.driver:
        remedy = "delete the plugin's pod: its replacement uses the new library"
        return finding(FAILED, f"the plugin runs with driver {told}, but the node has {facts.driver}", remedy)
    return finding(OK, f"{facts.driver}, {count(len(facts.cards), 'card')}")


def _runtime(facts: Facts) -> Finding:
    by = facts.status.runtime_class if facts.status else ""
    if facts.simulated:
        return Finding("runtime", OK, "simulated cards need no NVIDIA runtime")
    if facts.nvidia_runtime:
        return Finding("runtime", OK, f"the NVIDIA runtime runs the plugin{f' (runtimeClassName {by})' if by else ''}")
    remedy = "" if facts.driver else f"install the NVIDIA container toolkit; {_OVERLAY} if it is not the default"
    return Finding("runtime", WARNING, "the NVIDIA runtime does not run the plugin", remedy)


def _libcuda(facts: Facts) -> Finding:
    def finding(verdict: Verdict, found: str, remedy: str = "") -> Finding:
        return Finding("libcuda", verdict, found, remedy)

    if not facts.driver:
        return finding(UNKNOWN, "the driver does not answer")
    support = InjectionSupport(
        runtime_version=facts.node.runtime_version,
        lacking=facts.lacking,
        some=facts.some,
        last="cdi" if facts.status and facts.status.mode == "cdi" else None,
        nvidia_runtime=facts.nvidia_runtime,
        real=not facts.simulated,
    )
    try:
        mode = mode_of(facts.mode, support)
    except NoInjectionMode as error:
        return finding(FAILED, str(error), f"on the node, run {GENERATE}; or run {_OVERLAY}")
    if mode == "cdi" and facts.lacking and not facts.simulated:
        return finding(WARNING if facts.some else FAILED, facts.lacking, f"on the node, run {GENERATE}")
    chosen = facts.status.mode if facts.status else mode
    if chosen not in {mode, facts.mode}:
        return finding(
            WARNING,
            f"the plugin runs in mode {chosen}; it would now choose {mode}",
            "delete its pod, or wait until no pod holds cards",
        )
    problems = "; ".join(facts.spec_problems[:MOST_NAMED])
    if problems:
        return finding(WARNING, f"mode {mode}; unreadable CDI specs: {problems}", "fix or remove them")
    return finding(OK, f"mode {mode}")


def _kubelet(facts: Facts) -> Finding:
    if facts.missing:
        found = "; ".join(f"{path} does not exist ({what})" for path, what in facts.missing.items())
        remedy = "is the kubelet running? If its root directory differs, set kubelet.devicePluginDir"
        remedy = f"{remedy}, kubelet.podResourcesSocket and the mounts of the DaemonSet"
        return Finding("kubelet", FAILED, found, remedy)
    if facts.checkpoint_problem:
        return Finding("kubelet", FAILED, facts.checkpoint_problem, "restart the kubelet: it writes a new one")
    version = facts.node.kubelet_version[:_LONGEST_VERSION]
    for feature in versions.off(version, versions.OF_THE_KUBELET):
        found = f"{version}: {feature.name} is off by default before {feature.since}"
        return Finding("kubelet", WARNING, found, feature.without)
    return Finding("kubelet", OK, f"{version}, its sockets exist" if version else "its sockets exist")


def _plugin(facts: Facts) -> Finding:
    if facts.status is None:
        label = "app.kubernetes.io/name=gpushare-scheduler-device-plugin"
        pods = ("kubectl", "-n", "kube-system", "get", "pods", "-l", label)
        here = typed(*pods, "--field-selector", f"spec.nodeName={facts.node_name}")
        remedy = f"{here}; then kubectl -n kube-system logs POD"
        return Finding("plugin", FAILED, facts.status_problem, remedy)
    if not facts.status.registered:
        found = "; ".join(facts.status.problems) or "not registered with the kubelet"
        return Finding("plugin", FAILED, found, "see the checks above and the kubelet's log")
    if facts.status.problems:
        return Finding(
            "plugin", WARNING, "; ".join(facts.status.problems[:MOST_NAMED]), "docs/node-reference.md, Messages"
        )
    return Finding("plugin", OK, f"registered, {count(facts.status.announced_units, 'unit')} announced")


def _node(facts: Facts) -> Finding:
    node, (key, value) = facts.node, names.NODE_LABEL
    if node.problem:
        return Finding("node", UNKNOWN, node.problem, "grant the rights in deploy/manifests/device-plugin-rbac.yaml")
    if node.labels.get(key) != value and not facts.simulated:
        remedy = typed("kubectl", "label", "node", facts.node_name, f"{key}={value}")
        return Finding("node", WARNING, f"the node has no label {key}={value}: the DaemonSet does not run here", remedy)
    if not node.announced:
        remedy = "see announce.failed in the plugin's log"
        return Finding(
            "node", FAILED, f"the node has no annotation {names.INVENTORY}: the scheduler ignores it", remedy
        )
    if not node.allocatable:
        found = f"{names.GPU_MEM}: capacity {node.capacity}, allocatable 0: no pods are placed here"
        remedy = "see the checks plugin and cards: the plugin is not registered, or every card is out of use"
        return Finding("node", FAILED, found, remedy)
    return Finding("node", OK, f"{names.GPU_MEM}: {node.allocatable} of {node.capacity} allocatable")


def _pods(facts: Facts) -> Finding:
    if facts.node.problem:
        return Finding("pods", UNKNOWN, facts.node.problem)
    strangers = [f"{pod.name} (schedulerName {pod.scheduler})" for pod in facts.node.pods if not pod.scheduled]
    if strangers:
        found = f"pods bypassed the scheduler and count against every card: {some(strangers)}"
        remedy = f"create them again with schedulerName: {names.SCHEDULER_NAME} and without nodeName; "
        return Finding("pods", FAILED, found, f"{remedy}deploy/manifests/scheduler-name-policy.yaml rejects such pods")
    own = facts.status.runtime_class if facts.status else ""
    bare = [pod.name for pod in facts.node.pods if pod.runtime_class != own]
    if own and facts.status is not None and facts.status.mode == "environment" and bare:
        return Finding(
            "pods", FAILED, f"pods without runtimeClassName {own}: {some(bare)}", f"add runtimeClassName: {own}"
        )
    found = f"{count(len(facts.node.pods), 'pod')} with {names.GPU_MEM}, each with its card"
    return Finding("pods", OK, found if facts.node.pods else f"no pod requests {names.GPU_MEM}")


def _cards(facts: Facts) -> Finding:
    if facts.status is None:
        return Finding("cards", UNKNOWN, "the plugin does not answer")
    bad = [card for card in facts.status.cards if card.health in {"unhealthy", "suspect"} and card.reason not in _WELL]
    untried = [f"card {card.index} ({card.uuid})" for card in facts.status.cards if card.reason == UNTRIED]
    if not bad and untried:
        return Finding(
            "cards", WARNING, f"the plugin is still testing CUDA on {some(untried)}", "run doctor again in a minute"
        )
    if not bad and (absent := _absent(facts)):
        return Finding("cards", WARNING, f"the driver does not report {some(absent)}", _DENIED)
    if not bad:
        split = some([f"card {card.index} ({card.uuid})" for card in facts.status.cards if card.reason == MIG])
        found = f"{count(len(facts.status.cards), 'card')}, none out of use"
        return Finding(
            "cards", OK, f"{found}; in MIG mode, only their instances are shared: {split}" if split else found
        )
    reasons = dict.fromkeys(card.reason for card in bad)
    remedies = dict.fromkeys(_remedy(reason) for reason in reasons)
    found = some([f"card {card.index} ({card.uuid}) is {card.health}: {card.reason}" for card in bad])
    return Finding("cards", FAILED, found, "; ".join(filter(None, remedies)))


def _absent(facts: Facts) -> list[str]:
    """Return the optional facts that the driver fails to report, by card."""
    found = []
    for card in facts.cards:
        reading = facts.readings.get(card.uuid)
        if absent := (*card.absent, *(reading.absent if reading else ())):
            found.append(f"card {card.index} ({card.uuid}): {'; '.join(absent)}")
    return found


def _drift(facts: Facts) -> Finding:
    if facts.status is None:
        return Finding("drift", UNKNOWN, "the plugin does not answer")
    if not facts.status.drift:
        return Finding("drift", OK, "none")
    found = some([f"{one.kind}: {one.message}" for one in facts.status.drift])
    kinds = dict.fromkeys(one.kind for one in facts.status.drift)
    remedies = dict.fromkeys(
        _DRIFT.get(kind, "see docs/node-reference.md, Kinds of drift, for each kind") for kind in kinds
    )
    return Finding("drift", WARNING, found, "; ".join(remedies))


def _remedy(reason: str) -> str:
    return next((remedy for pattern, remedy in _REMEDIES if pattern.fullmatch(reason)), "")


_CHECKS: Final[tuple[Callable[[Facts], Finding], ...]] = (
    _driver,
    _runtime,
    _libcuda,
    limits,
    cgroup,
    hook,
    cuda,
    persistence,
    _kubelet,
    _plugin,
    _node,
    _pods,
    _cards,
    isolation,
    _drift,
)
