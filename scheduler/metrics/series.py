"""All metrics of the scheduler, with kube-scheduler's names and units for shared metrics and our own prefix for others.

Source of the names: kube-scheduler, pkg/scheduler/metrics/metrics.go (subsystem `scheduler`) and its uses; client-go,
tools/leaderelection/metrics.go.
"""

from typing import Final

from scheduler.process.contact import contact_series
from scheduler.process.series import BUILD as BUILD  # noqa: PLC0414 - one of the metrics
from scheduler.process.series import Label, Series

PREFIX: Final = "gpushare_scheduler_"
MOST_NAMESPACES: Final = 1000

SAME: Final = "the same"
_PROFILE: Final = Label("profile", "configured profiles")
_NODE: Final = Label("node", "nodes with cards")
_NODES_OF_CARDS: Final = Label("node", "nodes with cards, with `perCardMetrics`")
_NAMESPACE: Final = Label("namespace", f"{MOST_NAMESPACES:,} with the most memory, and `_other`")
_PLUGIN: Final = Label("plugin", "configured plugins, `EveryNode`, `NoNodes`, `SchedulerError`")

READY: Final = Series(
    name=f"{PREFIX}ready",
    kind="gauge",
    says="1 while /readyz answers 200: all kinds are listed and watched. Otherwise 0.",
)
LEADS: Final = Series(
    name=f"{PREFIX}leads",
    kind="gauge",
    says="1 if the replica is active, 0 if it is on standby; always 1 without leader election.",
)
MASTER: Final = Series(
    name="leader_election_master_status",
    kind="gauge",
    says="1 in the replica that holds the Lease, 0 in the others; absent without leader election.",
    labels=(Label("name", "1, the Lease"),),
    alike="describes another Lease",
)

ATTEMPTS: Final = Series(
    name="scheduler_schedule_attempts_total",
    kind="counter",
    says="Attempts to schedule a pod, by result: scheduled, unschedulable, or error (the binding was rejected).",
    labels=(Label("result", "3"), _PROFILE),
    alike=SAME,
)
ALGORITHM: Final = Series(
    name="scheduler_scheduling_algorithm_duration_seconds",
    kind="histogram",
    says="Time to decide on one pod, excluding PostFilter.",
    alike="includes PostFilter; has other buckets",
)
SLI: Final = Series(
    name="scheduler_pod_scheduling_sli_duration_seconds",
    kind="histogram",
    says="Time from when a pod is first queued until it is bound, by number of attempts; 16 means 16 or more.",
    labels=(Label("attempts", "16"),),
    alike="`15+` means 15 attempts or more; has other buckets",
)
POD_ATTEMPTS: Final = Series(
    name="scheduler_pod_scheduling_attempts",
    kind="histogram",
    says="Attempts needed to bind a pod.",
    alike=SAME,
)
PENDING: Final = Series(
    name="scheduler_pending_pods",
    kind="gauge",
    says="Waiting pods: ready to be tried (active), recently failed (backoff), not fitting any node (unschedulable), "
    "or gated.",
    labels=(Label("queue", "4"),),
    of_leader=True,
    alike="has no throttled namespaces; here, their pods count as active, or as backoff once their message says so",
)
PREEMPTIONS: Final = Series(
    name="scheduler_preemption_attempts_total",
    kind="counter",
    says="Searches for preemption victims, successful or not.",
    alike="counts one search per pod; here unschedulable pods of one class share a search",
)
VICTIMS: Final = Series(
    name="scheduler_preemption_victims",
    kind="histogram",
    says="Victims per preemption.",
    alike=SAME,
)
RESERVATIONS: Final = Series(
    name=f"{PREFIX}reservations_total",
    kind="counter",
    says="Reservations for pods that waited for reserveAfter: made (kept), or given up without success.",
    labels=(Label("result", "2"),),
)
LOST_WAKEUPS: Final = Series(
    name=f"{PREFIX}lost_wakeups_total",
    kind="counter",
    says="Waiting pods that fit, but that only background re-evaluation noticed; always a bug.",
)
WAITING: Final = Series(
    name=f"{PREFIX}waiting_pods",
    kind="gauge",
    says="Waiting pods with a message, by rejecting plugin; a pod counts once per plugin.",
    labels=(_PLUGIN,),
    of_leader=True,
)
LONGEST_WAIT: Final = Series(
    name=f"{PREFIX}longest_wait_seconds",
    kind="gauge",
    says="Age of the oldest waiting pod, by rejecting plugin.",
    labels=(_PLUGIN,),
    of_leader=True,
)

BINDS_IN_FLIGHT: Final = Series(
    name=f"{PREFIX}binds_in_flight", kind="gauge", says="Bind requests in flight, at most maxBindsInFlight."
)
BEING_BOUND: Final = Series(name=f"{PREFIX}pods_being_bound", kind="gauge", says="Placed pods that are not bound yet.")
BIND_RETRIES: Final = Series(
    name=f"{PREFIX}bind_retries_total",
    kind="counter",
    says="Bind requests retried after a timeout or a server error.",
)
REJECTIONS: Final = Series(
    name=f"{PREFIX}kubelet_rejections_total",
    kind="counter",
    says="Bound pods that a kubelet rejected at admission, by reason.",
    labels=(Label("reason", "the first 32, and `other`"),),
    of_leader=True,
)
LOST_RECORDS: Final = Series(
    name=f"{PREFIX}lost_records_total",
    kind="counter",
    says="Events and conditions that could not be written; the log event record.lost has the reason.",
)
BAD_OBJECTS: Final = Series(
    name=f"{PREFIX}bad_objects_total",
    kind="counter",
    says="Invalid objects, by kind; the log event object.bad has the problem.",
    labels=(Label("kind", "watched kinds"),),
)
LISTS: Final = Series(
    name=f"{PREFIX}lists_total",
    kind="counter",
    says="Complete lists, by kind: one at startup, and one each time a watch cannot continue.",
    labels=(Label("kind", "watched kinds"),),
)

AUDITS: Final = Series(
    name=f"{PREFIX}ledger_audits_total",
    kind="counter",
    says="Audits of the ledger, which recount all cards from nodes and pods.",
)
DIFFERENCES: Final = Series(
    name=f"{PREFIX}ledger_differences_total",
    kind="counter",
    says="Nodes whose ledger an audit repaired; always a bug.",
)
OVERCOMMITTED: Final = Series(
    name=f"{PREFIX}overcommitted_cards",
    kind="gauge",
    says="Cards with more memory booked than they have, at the last audit.",
)
SHARED_CARDS: Final = Series(
    name=f"{PREFIX}shared_cards", kind="gauge", says="Card UUIDs that several nodes announce, at the last audit."
)

LOOP_LAG: Final = Series(
    name=f"{PREFIX}loop_lag_seconds",
    kind="histogram",
    says="How long the event loop was blocked, measured four times a second.",
)
TASKS: Final = Series(name=f"{PREFIX}asyncio_tasks", kind="gauge", says="Unfinished tasks of the event loop.")
ANSWER_AGE, FAILING = contact_series(PREFIX)

NODE_MEMORY: Final = Series(
    name=f"{PREFIX}node_memory_bytes",
    kind="gauge",
    says="Memory of the node's announced cards, in whole units.",
    labels=(_NODE,),
    of_leader=True,
)
NODE_BOOKED: Final = Series(
    name=f"{PREFIX}node_memory_booked_bytes",
    kind="gauge",
    says="Memory booked on the node's cards, excluding nominations.",
    labels=(_NODE,),
    of_leader=True,
)
MEMORY_FREE: Final = Series(
    name=f"{PREFIX}memory_free_bytes",
    kind="gauge",
    says="Free memory of all cards that take new pods; nominations count as booked.",
    of_leader=True,
)
MEMORY_FRAGMENTED: Final = Series(
    name=f"{PREFIX}memory_fragmented_bytes",
    kind="gauge",
    says="Free memory that typical pods cannot use, averaged over them.",
    of_leader=True,
)
NODE_FREE: Final = Series(
    name=f"{PREFIX}node_memory_free_bytes",
    kind="gauge",
    says="Free memory of the node's cards that take new pods; nominations count as booked.",
    labels=(_NODES_OF_CARDS,),
    of_leader=True,
)
NODE_FRAGMENTED: Final = Series(
    name=f"{PREFIX}node_memory_fragmented_bytes",
    kind="gauge",
    says="Free memory of the node that typical pods cannot use, averaged over them.",
    labels=(_NODES_OF_CARDS,),
    of_leader=True,
)
NAMESPACE_REQUESTED: Final = Series(
    name=f"{PREFIX}namespace_memory_requested_bytes",
    kind="gauge",
    says="GPU memory requested by the namespace's bound pods; for an exclusive pod, only its request counts.",
    labels=(_NAMESPACE,),
    of_leader=True,
)
NAMESPACE_LIMIT: Final = Series(
    name=f"{PREFIX}namespace_memory_limit_bytes",
    kind="gauge",
    says="GPU memory that the namespace's bound pods may use: their gpushare/gpu-mem-limit, otherwise their requests.",
    labels=(_NAMESPACE,),
    of_leader=True,
)
ISOLATION: Final = Series(
    name=f"{PREFIX}cards",
    kind="gauge",
    says="Cards by what enforces the pods' shares of their memory; `advisory` if nothing does.",
    labels=(Label("isolation", "`driver`, `mps`, `hami-core`, `own`, `advisory` and `other`"),),
    of_leader=True,
)
FREE_RATIO: Final = Series(
    name=f"{PREFIX}card_free_ratio",
    kind="histogram",
    says="Cards by the free share of their memory. This is a snapshot: bucket counts can decrease.",
    of_leader=True,
)
CARD_MEMORY: Final = Series(
    name=f"{PREFIX}card_memory_bytes",
    kind="gauge",
    says="Memory of the card, in whole units.",
    labels=(Label("card", "cards of a node"), _NODES_OF_CARDS, Label("uuid", "1 per card")),
    of_leader=True,
)
CARD_BOOKED: Final = Series(
    name=f"{PREFIX}card_memory_booked_bytes",
    kind="gauge",
    says="Memory booked on the card, excluding nominations.",
    labels=CARD_MEMORY.labels,
    of_leader=True,
)
