"""Every metric of the device plugin.

Cards carry the labels of NVIDIA's dcgm-exporter, so that its dashboards and joins work with ours: `gpu` (the index),
`UUID`, `pci_bus_id` (8-digit domain, as in DCGM), `device` (`nvidia<index>`), `modelName` and `Hostname` (the node).
Series of containers also carry `namespace`, `pod` and `container`. Metrics that DCGM has keep its name and unit, MiB
and percent. Two exporters on a node would make sums count each card twice, so these can be left out (`dcgmMetrics`).
Other metrics begin with our prefix and use bytes and seconds, Prometheus' base units. If several pods share a card,
dcgm-exporter attributes the card's numbers to one of them. Here, a card's series name no pod, and a container's use is
a separate series.

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
    Label("namespace", "pods' namespaces"),
    Label("pod", "GPU pods"),
    Label("container", "pods' containers"),
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
    says="1 while /readyz answers 200: the plugin is registered, and containers can get the announced cards. "
    "Otherwise 0.",
    labels=(_HOST,),
)
REGISTERED: Final = Series(
    name=f"{PREFIX}registered", kind="gauge", says="1 while registered and watched by the kubelet, otherwise 0."
)
REGISTRATIONS: Final = Series(
    name=f"{PREFIX}registrations_total",
    kind="counter",
    says="Registrations with the kubelet: at startup, and each time the kubelet starts.",
)
CALLS: Final = Series(
    name=f"{PREFIX}call_duration_seconds",
    kind="histogram",
    says="Time to answer a kubelet call, including rejections.",
    labels=(_CALL,),
)
REFUSALS: Final = Series(
    name=f"{PREFIX}refusals_total",
    kind="counter",
    says="Rejected kubelet calls, by reason; the log event call.refused names the container.",
    labels=(_CALL, _REFUSAL),
)
DRIVER_PROCESSES: Final = Series(
    name=f"{PREFIX}driver_processes_started_total",
    kind="counter",
    says="Processes started to query the driver: one at startup, and a new one each time one hangs or dies.",
)
DRIVER_ABANDONED: Final = Series(
    name=f"{PREFIX}driver_processes_abandoned",
    kind="gauge",
    says="Processes that queried the driver, were killed, and hang in the kernel.",
)
XIDS: Final = Series(
    name=f"{PREFIX}xids_total",
    kind="counter",
    says="XID errors of all classes; UUID is empty if the driver did not name a card.",
    labels=(Label("UUID", "cards of the node, or empty"), Label("xid", "about 150")),
)
DRIFT: Final = Series(
    name=f"{PREFIX}drift",
    kind="gauge",
    says="Drift found at the last reconcile, by kind (docs/node-reference.md).",
    labels=(Label("kind", "kinds of drift"),),
)
MPS_READY: Final = Series(
    name=f"{PREFIX}mps_daemon_ready",
    kind="gauge",
    says="1 while the card's MPS daemon answers, otherwise 0. Only with isolation: mps.",
    labels=(Label("UUID", "cards of the node"),),
)
MPS_ENDS: Final = Series(
    name=f"{PREFIX}mps_daemon_ends_total",
    kind="counter",
    says="MPS daemons that ended; their clients failed.",
    labels=(Label("UUID", "cards of the node"),),
)
ANSWER_AGE, FAILING = contact_series(PREFIX)

CARD_HEALTH: Final = Series(
    name=f"{PREFIX}card_health",
    kind="gauge",
    says="1 for the card's announced health (healthy, suspect, unhealthy or cordoned), 0 for the others.",
    labels=(*CARD, Label("health", "4")),
)
CARD_ISOLATION: Final = Series(
    name=f"{PREFIX}card_isolation",
    kind="gauge",
    says="1, with what enforces the pods' shares of the card's memory (driver, mps, hami-core or own), or advisory if "
    "nothing does.",
    labels=(*CARD, Label("isolation", "1 per card, of 5")),
)
CARD_TOTAL: Final = Series(
    name=f"{PREFIX}card_memory_total_bytes", kind="gauge", says="Usable memory of the card.", labels=CARD
)
CARD_ANNOUNCED: Final = Series(
    name=f"{PREFIX}card_memory_announced_bytes",
    kind="gauge",
    says="Card memory announced to Kubernetes, in whole units.",
    labels=CARD,
)
CARD_ALLOCATED: Final = Series(
    name=f"{PREFIX}card_memory_allocated_bytes",
    kind="gauge",
    says="Memory of the card allocated to live pods.",
    labels=CARD,
)
CARD_USED: Final = Series(
    name=f"{PREFIX}card_memory_used_bytes",
    kind="gauge",
    says="Memory of the card used by any process; absent while the card does not answer.",
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
CONTAINER_EXACT: Final = Series(
    name=f"{PREFIX}container_memory_used_exact",
    kind="gauge",
    says="1 if the container's use of the card is the driver's own count, for a container that the driver limits; "
    "absent if it was added up by process.",
    labels=_CONTAINER,
)

DCGM_UTILISATION: Final = Series(
    name="DCGM_FI_DEV_GPU_UTIL", kind="gauge", says="Utilization of the card.", labels=CARD, in_unit="%"
)
DCGM_USED: Final = Series(
    name="DCGM_FI_DEV_FB_USED", kind="gauge", says="Used memory of the card.", labels=CARD, in_unit="MiB"
)
DCGM_FREE: Final = Series(
    name="DCGM_FI_DEV_FB_FREE", kind="gauge", says="Free memory of the card.", labels=CARD, in_unit="MiB"
)
DCGM_TEMPERATURE: Final = Series(
    name="DCGM_FI_DEV_GPU_TEMP", kind="gauge", says="Temperature of the card.", labels=CARD, in_unit="°C"
)
DCGM_POWER: Final = Series(
    name="DCGM_FI_DEV_POWER_USAGE", kind="gauge", says="Power draw of the card.", labels=CARD, in_unit="W"
)
DCGM_XID: Final = Series(
    name="DCGM_FI_DEV_XID_ERRORS",
    kind="gauge",
    says="Last XID of the card since the plugin started; 0 if none.",
    labels=CARD,
    in_unit="XID",
)
