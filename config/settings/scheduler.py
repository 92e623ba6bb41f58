"""SchedulerConfiguration: what the scheduler's configuration file may say, and what holds when it says nothing.

Names and nesting are KubeSchedulerConfiguration's (kubescheduler.config.k8s.io/v1) where it has the field. Of its
fields these are not here, since nothing would come of them: `parallelism` and `percentageOfNodesToScore` (every node
is judged, as array operations), `extenders`, `clientConnection.qps` and `.burst` (requests are bounded by
`maxBindsInFlight` and by the server's own priorities), `enableProfiling`, `delayCacheUntilActive` (a standby is warm),
and the extension points that `config.settings.plugins` names as missing. Pure.
"""

import math
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal, Self, TypeAlias

from pydantic import AfterValidator, Field, ValidationInfo, create_model, field_validator, model_validator
from pydantic.fields import FieldInfo

from config.protocol import names
from config.settings import duration
from config.settings.duration import Seconds
from config.settings.leader_election import LeaderElectionSection
from config.settings.page import PageSection
from config.settings.plugins import PluginConfig, PluginDescription, Plugins, plugin_config_type, plugins_model
from config.settings.schema import Address, Location, Section, host_and_port, refuse_twins

API_VERSION: Final = "gpushare/v1alpha1"
KIND: Final = "SchedulerConfiguration"
DEFAULT_BIND_TIMEOUT_S: Final = 4.0

LARGEST_UNIT_MIB: Final = 2**20
"""1 TiB: no card has as much, so it would have no whole unit."""
DEFAULT_NOT_READY_AFTER_S: Final = 30.0
NOT_READY_AFTER: Final = (
    "How long the API server may be unreachable, or reject the credentials, before `/readyz` answers 503 with the "
    "reason."
)
SHORTEST_NOT_READY_AFTER_S: Final = 1.0
LONGEST_NOT_READY_AFTER_S: Final = 3600.0

# Ten attempts a second at a pod that nothing helps are a busy loop; one that is not tried within an hour is forgotten.
_SHORTEST_BACKOFF_S: Final = 0.1
_LONGEST_BACKOFF_S: Final = 3600.0
# A shorter one ends while a busy API server still works on the request; the server itself gives up after a minute
# (--request-timeout).
_SHORTEST_BIND_TIMEOUT_S: Final = 0.5
_LONGEST_BIND_TIMEOUT_S: Final = 60.0
# Between two bookmarks is a minute; after ten at the latest the server ends the watch anyway, as it is asked to.
_SHORTEST_STALL_S: Final = 90.0
_LONGEST_STALL_S: Final = 600.0
_LONGEST_PERIOD_S: Final = 86_400.0
_LONGEST_HALF_LIFE_S: Final = 365 * 86_400.0
# Each is a connection; beyond that the API server's own priorities hold requests back.
_MOST_BINDS: Final = 1024
_PREFIX: Final = r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?(?:\.[a-z0-9](?:[-a-z0-9]*[a-z0-9])?)*"
_NAME: Final = r"[A-Za-z0-9](?:[-A-Za-z0-9_.]*[A-Za-z0-9])?"
_RESOURCE: Final = re.compile(rf"{_PREFIX}/{_NAME}")
_QUALIFIED: Final = re.compile(rf"(?:(?P<prefix>{_PREFIX})/)?(?P<name>{_NAME})")
_LONGEST_PREFIX: Final = 253
_LONGEST_NAME: Final = 63
_KUBE_SCHEDULER: Final = "default-scheduler"


def extended_resource(name: str) -> str:
    """`name` as it stands. Raises ValueError when no extended resource can have it."""
    if not _RESOURCE.fullmatch(name) or name.split("/", 1)[0].endswith("kubernetes.io"):
        raise ValueError(f"expected the name of an extended resource, domain/name, found {name[:80]!r}")
    return name


def _scheduler_name(name: str) -> str:
    """Events carry it as `reportingController`, and the API server refuses them all when it is no qualified name.

    Source: pkg/apis/core/validation/events.go (legacyValidateEvent); apimachinery, validation.IsQualifiedName.
    """
    match = _QUALIFIED.fullmatch(name)
    if match is None or len(match["name"]) > _LONGEST_NAME or len(match["prefix"] or "") > _LONGEST_PREFIX:
        raise ValueError(
            "expected a name that Events can carry, such as gpushare-scheduler or example.com/gpus: 1 to 63 letters, "
            f"digits, -, _ and ., beginning and ending with a letter or digit, found {name[:80]!r}"
        )
    if name == _KUBE_SCHEDULER:
        message = f"expected a name other than {name}, because kube-scheduler would bind the same pods"
        raise ValueError(message)
    return name


def _bind_timeout(timeout_s: float) -> float:
    if timeout_s and not _SHORTEST_BIND_TIMEOUT_S <= timeout_s <= _LONGEST_BIND_TIMEOUT_S:
        raise ValueError(
            f"expected 0, or {duration.text(_SHORTEST_BIND_TIMEOUT_S)} to {duration.text(_LONGEST_BIND_TIMEOUT_S)}, "
            f"found {timeout_s:g} s"
        )
    return timeout_s


ResourceName: TypeAlias = Annotated[str, AfterValidator(extended_resource)]
SchedulerName: TypeAlias = Annotated[str, AfterValidator(_scheduler_name)]


class Resources(Section):
    """The names of what pods ask and nodes offer; the device plugin must announce the same."""

    gpu_mem: ResourceName = Field(default=names.GPU_MEM, description="Memory units on one card: a container's limit.")
    gpu_count: ResourceName = Field(
        default=names.GPU_COUNT,
        description="Cards of a node; as a label or annotation of a pod, the number of cards that it requests.",
    )
    gpu_core: ResourceName = Field(default=names.GPU_CORE, description="Hundredths of a card's compute share.")

    @model_validator(mode="after")
    def _different(self) -> Self:
        if len({self.gpu_mem, self.gpu_count, self.gpu_core}) < 3:  # noqa: PLR2004  (the three fields)
            raise ValueError("expected three different names for gpuMem, gpuCount and gpuCore")
        return self


class PluginSection(Section):
    """The arguments of a plugin."""

    def contradicting(self, resources: Resources) -> Iterator[tuple[Location, str]]:  # noqa: ARG002 - of those that name resources
        """(place, mistake) of each entry that contradicts the configured resource names."""
        yield from ()


class SchedulerProfile(Section):
    """One way of scheduling, for the pods that name it."""

    scheduler_name: SchedulerName = Field(
        default=names.SCHEDULER_NAME, description="Pods with this `spec.schedulerName` are scheduled by this profile."
    )
    additional_scheduler_names: tuple[SchedulerName, ...] | None = Field(
        default=None,
        description="More names for the same profile. When left out: "
        f"`{names.SHORT_SCHEDULER_NAME}` for the profile `{names.SCHEDULER_NAME}`, unless another profile has that "
        "name; none for other profiles.",
    )
    plugins: Plugins = Field(default=Plugins(), description="Changes to the default plugins.")
    plugin_config: tuple[PluginConfig, ...] = Field(default=(), description="Arguments of plugins, each plugin once.")

    @field_validator("plugin_config")
    @classmethod
    def _each_once(cls, entries: tuple[PluginConfig, ...]) -> tuple[PluginConfig, ...]:
        refuse_twins("plugin", [entry.name for entry in entries])
        return entries


class ClientConnection(Section):
    """How to reach the API server."""

    kubeconfig: str = Field(
        default="",
        description="A kubeconfig file, used [as kubectl does](kubectl.md#kubeconfigs). When left out: `KUBECONFIG`, "
        "then the service account of the pod that it runs in, then `~/.kube/config`.",
    )
    context: str = Field(default="", description="A context of the kubeconfig; when left out, its current context.")


class SchedulerConfiguration(Section):
    """Everything that can be set. Every field may be left out; a file names `apiVersion` and `kind`."""

    api_version: Literal["gpushare/v1alpha1"] = Field(default=API_VERSION, description="Version and kind of this file.")
    kind: Literal["SchedulerConfiguration"] = Field(default=KIND, description="Version and kind of this file.")
    profiles: tuple[SchedulerProfile, ...] = Field(
        default=(SchedulerProfile(),),
        description="Ways of scheduling, by scheduler name. A list given here replaces the default one.",
    )
    resources: Resources = Field(default=Resources(), description="Names of the resources.")
    memory_unit_mib: int = Field(
        default=1024,
        validation_alias="memoryUnitMiB",
        ge=1,
        le=LARGEST_UNIT_MIB,
        description="MiB in one unit of `gpuMem`. A node that announces another unit is not used. Use 128 or more; "
        "smaller units are for a cluster that already counts in MiB, as the legacy plugin can.",
    )
    pod_initial_backoff_seconds: float = Field(
        default=1.0,
        ge=_SHORTEST_BACKOFF_S,
        le=_LONGEST_BACKOFF_S,
        description="Wait after the first failed attempt; doubles each time.",
    )
    pod_max_backoff_seconds: float = Field(
        default=10.0,
        ge=_SHORTEST_BACKOFF_S,
        le=_LONGEST_BACKOFF_S,
        validate_default=True,
        description="Longest such wait, at least `podInitialBackoffSeconds`.",
    )
    requests_half_life_s: Seconds = Field(
        default=604_800.0,
        validation_alias="requestsHalfLife",
        ge=60.0,
        le=_LONGEST_HALF_LIFE_S,
        description="Half-life of past requests, from which the policy `fragmentation` learns what pods usually "
        "request: after this time a pod counts half.",
    )
    reserve_after_s: Seconds = Field(
        default=300.0,
        validation_alias="reserveAfter",
        ge=0,
        le=_LONGEST_PERIOD_S,
        description="The first pod of its priority gets a reservation after waiting this long; pods of the same or a "
        "lower priority cannot use the reserved memory. 0: never.",
    )
    bind_timeout_s: Annotated[Seconds, AfterValidator(_bind_timeout)] = Field(
        default=DEFAULT_BIND_TIMEOUT_S,
        validation_alias="bindTimeout",
        description="Time limit of a request that only the leader may send, such as a Binding or a deletion: 500ms to "
        "1m. If another scheduler may have been running just before, the first bind waits as long, because a request "
        "of that one may still take effect. 0: no such wait, for clusters that no other scheduler has served, and 4s "
        "for a request.",
    )
    max_binds_in_flight: int = Field(
        default=64,
        ge=1,
        le=_MOST_BINDS,
        description="Maximum number of concurrent bind requests; one namespace may use three quarters of them.",
    )
    watch_stall_timeout_s: Seconds = Field(
        default=150.0,
        validation_alias="watchStallTimeout",
        ge=_SHORTEST_STALL_S,
        le=_LONGEST_STALL_S,
        description="Reopen a watch that delivers nothing for this long, not even a bookmark. The API server sends a "
        "bookmark about every minute, and ends a watch after five to ten.",
    )
    not_ready_after_s: Seconds = Field(
        default=DEFAULT_NOT_READY_AFTER_S,
        validation_alias="notReadyAfter",
        ge=SHORTEST_NOT_READY_AFTER_S,
        le=LONGEST_NOT_READY_AFTER_S,
        description=NOT_READY_AFTER,
    )
    ledger_audit_period_s: Seconds = Field(
        default=600.0,
        validation_alias="ledgerAuditPeriod",
        ge=1,
        le=_LONGEST_PERIOD_S,
        description="How often the bookings of each card are recounted from pods and nodes, and compared.",
    )
    leader_election: LeaderElectionSection = Field(
        default=LeaderElectionSection(), description="Which of several replicas is active."
    )
    client_connection: ClientConnection = Field(default=ClientConnection(), description="How to reach the API server.")
    listen: Address = Field(
        default=":10261",
        description="Address and port of `/healthz`, `/readyz`, `/metrics` and the inspect API; port 0: any free one.",
    )
    inspect_api: Literal["local", "all", "none"] = Field(
        default="local",
        description="Who may read `/gpushare-scheduler/inspect`, which names pods: callers on the same machine, "
        "such as `kubectl port-forward`; anyone who reaches the port; or no one.",
    )
    page: PageSection = Field(default=PageSection(), description="The web page.")
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        default="info",
        description="Minimum log level; debug adds the reasons of some nodes to each failed attempt.",
    )
    log_format: Literal["auto", "console", "json"] = Field(
        default="auto", description="`auto`: console in a terminal, otherwise JSON, one object per line."
    )
    per_card_metrics: bool = Field(
        default=False, description="Add series per card to `/metrics`; 5,000 nodes of 8 cards make 80,000."
    )

    @field_validator("pod_max_backoff_seconds")
    @classmethod
    def _not_below_the_first(cls, longest_s: float, info: ValidationInfo) -> float:
        first_s = info.data.get("pod_initial_backoff_seconds", 0.0)
        if longest_s < first_s:
            raise ValueError(f"expected at least podInitialBackoffSeconds, which is {first_s:g}, found {longest_s:g}")
        return longest_s

    @field_validator("profiles")
    @classmethod
    def _names_are_unique(cls, profiles: tuple[SchedulerProfile, ...]) -> tuple[SchedulerProfile, ...]:
        if not profiles:
            raise ValueError("expected at least one profile, found none")
        refuse_twins("scheduler name", _explicit_names(profiles))
        return profiles

    def contradictions(self) -> Iterator[tuple[Location, str]]:
        """Contradictions between plugin arguments and resource names, and between bind timeout and Lease."""
        election = self.leader_election
        left_s = election.lease_duration_s - election.renew_deadline_s
        # The API server is told whole seconds.
        if election.leader_elect and math.ceil(self.bind_request_timeout_s) >= left_s:
            message = (
                f"expected less than leaderElection.leaseDuration minus renewDeadline, {duration.text(left_s)}, "
                f"found {duration.text(self.bind_request_timeout_s)}: the next leader could bind while a "
                "request of this one is in flight"
            )
            yield ("bindTimeout",), message
        for number, profile in enumerate(self.profiles):
            for place, entry in enumerate(profile.plugin_config):
                if isinstance(entry.args, PluginSection):
                    for location, message in entry.args.contradicting(self.resources):
                        yield ("profiles", number, "pluginConfig", place, "args", *location), message

    @property
    def listen_address(self) -> tuple[str, int]:
        """Host ("" for all addresses; an IPv6 address without its brackets) and port of `listen`."""
        return host_and_port(self.listen)

    @property
    def bind_request_timeout_s(self) -> float:
        """How long one bind request may take, > 0."""
        return self.bind_timeout_s or DEFAULT_BIND_TIMEOUT_S


@dataclass(frozen=True, slots=True)
class ResolvedProfile:
    """A profile with nothing left to look up in the configuration.

    scheduler_names: the `spec.schedulerName`s it serves, the first is its own. plugins: its changes to the defaults.
    args: of each plugin that the profile has arguments for, by name: the plugin's own model, or what becomes one.
    """

    scheduler_names: tuple[str, ...]
    plugins: Plugins
    args: Mapping[str, Any]


def resolve(configuration: SchedulerConfiguration) -> tuple[ResolvedProfile, ...]:
    """The profiles to run, in order; no scheduler name is in two of them."""
    taken = frozenset(_explicit_names(configuration.profiles))
    return tuple(
        ResolvedProfile(
            (profile.scheduler_name, *_more_names(profile, taken)),
            profile.plugins,
            {entry.name: entry.args for entry in profile.plugin_config},
        )
        for profile in configuration.profiles
    )


def configuration_model(described: Sequence[PluginDescription]) -> type[SchedulerConfiguration]:
    """SchedulerConfiguration that knows which plugins there are, and which arguments each takes."""
    plugins, entry = plugins_model(described), plugin_config_type(described)
    profile_fields, fields = SchedulerProfile.model_fields, SchedulerConfiguration.model_fields
    profile = create_model(
        "SchedulerProfile",
        __base__=SchedulerProfile,
        plugins=(plugins, _field(profile_fields["plugins"], plugins())),
        plugin_config=(tuple[entry, ...], _field(profile_fields["plugin_config"], ())),  # type: ignore[valid-type]
    )
    profiles = (tuple[profile, ...], _field(fields["profiles"], (profile(),)))  # type: ignore[valid-type]
    return create_model("SchedulerConfiguration", __base__=SchedulerConfiguration, profiles=profiles)


def _field(of: FieldInfo, default: object) -> Any:  # noqa: ANN401 - as pydantic's Field
    """Copy of the field with another default."""
    field = copy(of)
    field.default = default
    return field


def _more_names(profile: SchedulerProfile, taken: Collection[str]) -> tuple[str, ...]:
    if profile.additional_scheduler_names is not None:
        return profile.additional_scheduler_names
    short_is_free = names.SHORT_SCHEDULER_NAME not in taken
    return (names.SHORT_SCHEDULER_NAME,) if profile.scheduler_name == names.SCHEDULER_NAME and short_is_free else ()


def _explicit_names(profiles: tuple[SchedulerProfile, ...]) -> list[str]:
    return [n for p in profiles for n in (p.scheduler_name, *(p.additional_scheduler_names or ()))]
