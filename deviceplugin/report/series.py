"""Every metric of the device plugin.

Cards carry the labels of NVIDIA's dcgm-exporter, so that its dashboards and joins work on ours: `gpu` (the index),
`UUID`, `pci_bus_id` (eight digits of domain, as DCGM writes it), `device` (`nvidia<index>`), `modelName`, `Hostname`
(the node), and on series of containers `namespace`, `pod`, `container`. What DCGM has keeps its name and unit, MiB and
percent. Two exporters on a node would make sums count each card twice, so these can be left out (`dcgmMetrics`). What
DCGM does not have begins with our prefix and is in bytes and seconds, as Prometheus has it. With one card shared by
several pods, dcgm-exporter puts the card's numbers on one of them; here the series of a card name no pod, and what a
container uses is a series of its own.

Source: dcgm-exporter, etc/default-counters.csv and the labels of its output (NVIDIA/dcgm-exporter, pull 326).
"""

from typing import Final

from scheduler.process.contact import contact_series
from scheduler.process.series import BUILD as BUILD  # noqa: PLC0414 - one of the metrics
from scheduler.process.series import Label, Series

PREFIX: Final = "gpushare_device_plugin_"

_HOST: Final = Label("Hostname", "1, the node")
CARD: Final = (
    Label("gpu", "cards of the node"),
    Label("UUID", "1 per card"),
    Label("pci_bus_id", "1 per card"),
    Label("device", "1 per card"),
    Label("modelName", "1 per card"),
    _HOST,
)
_CONTAINER: Final = (
    *CARD,
    Label("namespace", "pods of the node with GPU memory"),
    Label("pod", "pods of the node with GPU memory"),
    Label("container", "containers of these pods with GPU memory"),
)
_REFUSAL: Final = Label(
    "reason",
    "11: NotIdentified, NoAllocation, WrongAllocation, OtherCard, OtherRuntime, NotIsolated, CheckpointError,"
    " KubeletSilent, CdiError, OSError, Starting",
)
_CALL: Final = Label("call", "2: Allocate, PreStartContainer")

READY: Final = Series(
    name=f"{PREFIX}ready",
    kind="gauge",
    says="1 while /readyz answers 200: cards are announced, containers get them, it is registered. Otherwise 0.",
    labels=(_HOST,),
)
REGISTERED: Final = Series(
    name=f"{PREFIX}registered", kind="gauge", says="1 while registered and watched by the kubelet, otherwise 0."
)
REGISTRATIONS: Final = Series(
    name=f"{PREFIX}registrations_total",
    kind="counter",
    says="Registrations with the kubelet: one at the start, and one whenever the kubelet starts.",
)
CALLS: Final = Series(
    name=f"{PREFIX}call_duration_seconds",
    kind="histogram",
    says="Time to serve a call of the kubelet, rejections included.",
    labels=(_CALL,),
)
REFUSALS: Final = Series(
    name=f"{PREFIX}refusals_total",
    kind="counter",
    says="Rejected calls of the kubelet, by reason; the log line call.refused names the container.",
    labels=(_CALL, _REFUSAL),
)
DRIVER_PROCESSES: Final = Series(
    name=f"{PREFIX}driver_processes_started_total",
    kind="counter",
    says="Processes started to query the driver: one at the start, and one after each that hung or died.",
)
DRIVER_ABANDONED: Final = Series(
    name=f"{PREFIX}driver_processes_abandoned",
    kind="gauge",
    says="Processes that queried the driver, were killed, and hang in the kernel.",
)
XIDS: Final = Series(
    name=f"{PREFIX}xids_total",
    kind="counter",
    says="XID errors that the driver reported, of every class; UUID is empty if the driver named no card.",
    labels=(Label("UUID", "cards of the node, and none"), Label("xid", "numbers that NVIDIA defines, some 150")),
)
DRIFT: Final = Series(
    name=f"{PREFIX}drift",
    kind="gauge",
    says="Differences between decisions and reality, found by the last reconcile, by kind (docs/node-reference.md).",
    labels=(Label("kind", "kinds of drift (docs/node-reference.md)"),),
)
MPS_READY: Final = Series(
    name=f"{PREFIX}mps_daemon_ready",
    kind="gauge",
    says="1 while the MPS daemon of the card answers, otherwise 0; present with isolation: mps.",
    labels=(Label("UUID", "cards of the node"),),
)
MPS_ENDS: Final = Series(
    name=f"{PREFIX}mps_daemon_ends_total",
    kind="counter",
    says="Ended MPS daemons; their clients failed.",
    labels=(Label("UUID", "cards of the node"),),
)
ANSWER_AGE, FAILING = contact_series(PREFIX)

CARD_HEALTH: Final = Series(
    name=f"{PREFIX}card_health",
    kind="gauge",
    says="1 for the announced health of the card (healthy, suspect, unhealthy, cordoned), 0 for the others.",
    labels=(*CARD, Label("health", "4")),
)
CARD_TOTAL: Final = Series(
    name=f"{PREFIX}card_memory_total_bytes", kind="gauge", says="Memory of the card that can be used.", labels=CARD
)
CARD_ANNOUNCED: Final = Series(
    name=f"{PREFIX}card_memory_announced_bytes",
    kind="gauge",
    says="Memory of the card that is announced to Kubernetes, in whole units.",
    labels=CARD,
)
CARD_ALLOCATED: Final = Series(
    name=f"{PREFIX}card_memory_allocated_bytes",
    kind="gauge",
    says="Memory of the card that is allocated to live pods.",
    labels=CARD,
)
CARD_USED: Final = Series(
    name=f"{PREFIX}card_memory_used_bytes",
    kind="gauge",
    says="Memory of the card in use, by any process; absent while the card does not answer.",
    labels=CARD,
)
CONTAINER_REQUESTED: Final = Series(
    name=f"{PREFIX}container_memory_requested_bytes",
    kind="gauge",
    says="Memory that the container requests on the card, as of the last reconcile.",
    labels=_CONTAINER,
)
CONTAINER_USED: Final = Series(
    name=f"{PREFIX}container_memory_used_bytes",
    kind="gauge",
    says="Memory that the container uses on the card, as of the last reconcile; absent if unknown.",
    labels=_CONTAINER,
)

DCGM_UTILISATION: Final = Series(
    name="DCGM_FI_DEV_GPU_UTIL", kind="gauge", says="Duty cycle of the card.", labels=CARD, in_unit="%"
)
DCGM_USED: Final = Series(
    name="DCGM_FI_DEV_FB_USED", kind="gauge", says="Memory of the card in use.", labels=CARD, in_unit="MiB"
)
DCGM_FREE: Final = Series(
    name="DCGM_FI_DEV_FB_FREE", kind="gauge", says="Memory of the card that is free.", labels=CARD, in_unit="MiB"
)
DCGM_TEMPERATURE: Final = Series(
    name="DCGM_FI_DEV_GPU_TEMP", kind="gauge", says="Temperature of the card.", labels=CARD, in_unit="°C"
)
DCGM_POWER: Final = Series(
    name="DCGM_FI_DEV_POWER_USAGE", kind="gauge", says="Power that the card draws.", labels=CARD, in_unit="W"
)
DCGM_XID: Final = Series(
    name="DCGM_FI_DEV_XID_ERRORS",
    kind="gauge",
    says="The last XID of the card since the plugin started, 0 for none.",
    labels=CARD,
    in_unit="XID",
)
