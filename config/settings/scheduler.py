"""SchedulerConfiguration: the fields of the scheduler's configuration file, with their defaults.

Names and nesting are those of KubeSchedulerConfiguration (kubescheduler.config.k8s.io/v1) for shared fields. These of
its fields are missing, because they would have no effect: `parallelism` and `percentageOfNodesToScore` (every node is
evaluated, with array operations), `extenders`, `clientConnection.qps` and `.burst` (requests are bounded by
`maxBindsInFlight` and by the server's own priorities), `enableProfiling`, `delayCacheUntilActive` (a standby is warm),
and the extension points that `config.settings.plugins` lists as missing. Pure.
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

# Ten attempts a second at a hopeless pod are a busy loop; a pod that is not tried within an hour is forgotten.
_SHORTEST_BACKOFF_S: Final = 0.1
_LONGEST_BACKOFF_S: Final = 3600.0
# A shorter time-out ends while a busy API server still works on the request; the server itself gives up after a minute
# (--request-timeout).
_SHORTEST_BIND_TIMEOUT_S: Final = 0.5
_LONGEST_BIND_TIMEOUT_S: Final = 60.0
# Bookmarks come a minute apart; after ten minutes at most the server ends the watch anyway, as requested.
_SHORTEST_STALL_S: Final = 90.0
_LONGEST_STALL_S: Final = 600.0
_LONGEST_PERIOD_S: Final = 86_400.0
# Each is a connection; beyond this number, the API server's own priorities delay requests.
_MOST_BINDS: Final = 1024
_PREFIX: Final = r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?(?:\.[a-z0-9](?:[-a-z0-9]*[a-z0-9])?)*"
_NAME: Final = r"[A-Za-z0-9](?:[-A-Za-z0-9_.]*[A-Za-z0-9])?"
_RESOURCE: Final = re.compile(rf"{_PREFIX}/{_NAME}")
_QUALIFIED: Final = re.compile(rf"(?:(?P<prefix>{_PREFIX})/)?(?P<name>{_NAME})")
_LONGEST_PREFIX: Final = 253
_LONGEST_NAME: Final = 63
_KUBE_SCHEDULER: Final = "default-scheduler"


def extended_resource(name: str) -> str:
    """Return `name` unchanged. Raises ValueError if it is not a valid name of an extended resource."""
    if not _RESOURCE.fullmatch(name) or name.split("/", 1)[0].endswith("kubernetes.io"):
        raise ValueError(f"expected the name of an extended resource, domain/name, found {name[:80]!r}")
    return name


def _scheduler_name(name: str) -> str:
    """Validate the name: Events carry it as `reportingController`, which must be a qualified name.

    The API server rejects all Events otherwise. Source: pkg/apis/core/validation/events.go (legacyValidateEvent);
    apimachinery, validation.IsQualifiedName.
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
    """Names of the resources, the same for scheduler and device plugin."""

    gpu_mem: ResourceName = Field(default=names.GPU_MEM, description="GPU memory in units, set as a container's limit.")
    gpu_count: ResourceName = Field(
        default=names.GPU_COUNT,
        description="Number of a node's cards; as a pod's label or annotation, how many cards it requests.",
    )
    gpu_core: ResourceName = Field(default=names.GPU_CORE, description="Compute share, as a percentage of a card.")

    @model_validator(mode="after")
    def _different(self) -> Self:
        if len({self.gpu_mem, self.gpu_count, self.gpu_core}) < 3:  # noqa: PLR2004  (the three fields)
            raise ValueError("expected three different names for gpuMem, gpuCount and gpuCore")
        return self


class PluginSection(Section):
    """The arguments of a plugin."""

    def contradicting(self, resources: Resources) -> Iterator[tuple[Location, str]]:  # noqa: ARG002 - of those that name resources
        """Yield (location, mistake) of each entry that contradicts the configured resource names."""
        yield from ()


class SchedulerProfile(Section):
    """Scheduling settings for the pods that select this profile."""

    scheduler_name: SchedulerName = Field(
        default=names.SCHEDULER_NAME, description="The profile applies to pods with this `spec.schedulerName`."
    )
    additional_scheduler_names: tuple[SchedulerName, ...] | None = Field(
        default=None,
        description=f"More names for the profile. If omitted, `{names.SCHEDULER_NAME}` also has the name "
        f"`{names.SHORT_SCHEDULER_NAME}`, unless another profile uses it.",
    )
    plugins: Plugins = Field(default=Plugins(), description="Changes to the default plugins.")
    plugin_config: tuple[PluginConfig, ...] = Field(
        default=(), description="Arguments of plugins, one entry per plugin."
    )

    @field_validator("plugin_config")
    @classmethod
    def _each_once(cls, entries: tuple[PluginConfig, ...]) -> tuple[PluginConfig, ...]:
        refuse_twins("plugin", [entry.name for entry in entries])
        return entries


class ClientConnection(Section):
    """How to reach the API server."""

    kubeconfig: str = Field(
        default="",
        description="A kubeconfig file, used [as kubectl does](kubectl.md#kubeconfigs). If omitted: `KUBECONFIG`, "
        "then the pod's service account, then `~/.kube/config`.",
    )
    context: str = Field(default="", description="A context of the kubeconfig. If omitted: the current context.")


class SchedulerConfiguration(Section):
    """All settings. A file must have `apiVersion` and `kind`."""

    api_version: Literal["gpushare/v1alpha1"] = Field(default=API_VERSION, description="Version of the file.")
    kind: Literal["SchedulerConfiguration"] = Field(default=KIND, description="Kind of the file.")
    profiles: tuple[SchedulerProfile, ...] = Field(
        default=(SchedulerProfile(),),
        description="Profiles, by scheduler name. Your list replaces the default profile.",
    )
    resources: Resources = Field(default=Resources(), description="Names of the resources.")
    memory_unit_mib: int = Field(
        default=1024,
        validation_alias="memoryUnitMiB",
        ge=1,
        le=LARGEST_UNIT_MIB,
        description="MiB in one unit of `gpuMem`. Nodes with a different unit are ignored. Use 128 or more, unless "
        "the cluster already counts in MiB, as the legacy plugin can.",
    )
    pod_initial_backoff_seconds: float = Field(
        default=1.0,
        ge=_SHORTEST_BACKOFF_S,
        le=_LONGEST_BACKOFF_S,
        description="Back-off after the first failed attempt; doubles each time.",
    )
    pod_max_backoff_seconds: float = Field(
        default=10.0,
        ge=_SHORTEST_BACKOFF_S,
        le=_LONGEST_BACKOFF_S,
        validate_default=True,
        description="Longest back-off, at least `podInitialBackoffSeconds`.",
    )
    reserve_after_s: Seconds = Field(
        default=300.0,
        validation_alias="reserveAfter",
        ge=0,
        le=_LONGEST_PERIOD_S,
        description="After waiting this long, the pod that waits longest at its priority gets a reservation; pods of "
        "the same or a lower priority cannot use it. 0: never.",
    )
    bind_timeout_s: Annotated[Seconds, AfterValidator(_bind_timeout)] = Field(
        default=DEFAULT_BIND_TIMEOUT_S,
        validation_alias="bindTimeout",
        description="Time limit (500ms to 1m) for requests that only the leader may send, such as Bindings and "
        "deletions. If another scheduler may have been active just before, the first bind also waits this long, "
        "because that scheduler's requests may still take effect. 0: a limit of 4s and no wait, for clusters that "
        "never had another scheduler.",
    )
    max_binds_in_flight: int = Field(
        default=64,
        ge=1,
        le=_MOST_BINDS,
        description="Maximum number of concurrent bind requests. One namespace gets at most half.",
    )
    watch_stall_timeout_s: Seconds = Field(
        default=150.0,
        validation_alias="watchStallTimeout",
        ge=_SHORTEST_STALL_S,
        le=_LONGEST_STALL_S,
        description="Reopen a watch that has delivered nothing for this long, not even a bookmark. The API server "
        "sends a bookmark about every minute.",
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
        description="How often each card's ledger is checked against pods and nodes.",
    )
    leader_election: LeaderElectionSection = Field(
        default=LeaderElectionSection(), description="Election of the active replica."
    )
    client_connection: ClientConnection = Field(default=ClientConnection(), description="How to reach the API server.")
    listen: Address = Field(
        default=":10261",
        description="Address and port of `/healthz`, `/readyz`, `/metrics` and the inspect API. Port 0: any free port.",
    )
    inspect_api: Literal["local", "all", "none"] = Field(
        default="local",
        description="Who may read `/gpushare-scheduler/inspect`, which names pods: callers on the same machine, "
        "such as `kubectl port-forward`; everyone; or nobody.",
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        default="info",
        description="Minimum log level. `debug` also shows, for each failed attempt, why some of the nodes were "
        "rejected.",
    )
    log_format: Literal["auto", "console", "json"] = Field(
        default="auto", description="`auto`: console in a terminal, otherwise JSON, one object per line."
    )
    per_card_metrics: bool = Field(
        default=False, description="Add series per card to `/metrics`: 80,000 for 5,000 nodes with 8 cards each."
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
        """Yield contradictions between plugin arguments and resource names, and between bind timeout and Lease."""
        election = self.leader_election
        left_s = election.lease_duration_s - election.renew_deadline_s
        # The API server receives whole seconds.
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
        """Time limit of one bind request, > 0."""
        return self.bind_timeout_s or DEFAULT_BIND_TIMEOUT_S


@dataclass(frozen=True, slots=True)
class ResolvedProfile:
    """A profile with nothing left to look up in the configuration.

    scheduler_names: the `spec.schedulerName`s that it serves, its own first. plugins: its changes to the defaults.
    args: plugin name -> its arguments, if the profile has some: the plugin's own model, or input for it.
    """

    scheduler_names: tuple[str, ...]
    plugins: Plugins
    args: Mapping[str, Any]


def resolve(configuration: SchedulerConfiguration) -> tuple[ResolvedProfile, ...]:
    """Return the profiles to run, in order; no two share a scheduler name."""
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
    """Return a SchedulerConfiguration model that knows the plugins and the arguments of each."""
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
    """Return a copy of the field with another default."""
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
