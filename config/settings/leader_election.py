"""Leader election between replicas: KubeSchedulerConfiguration's leaderElection, with its defaults. Pure."""

from typing import Final, Literal, Self

from pydantic import Field, field_validator, model_validator

from config.protocol import names
from config.settings import duration
from config.settings.duration import Seconds
from config.settings.schema import Section

_LONGEST_LEASE_S: Final = 600.0
_SHORTEST_RETRY_S: Final = 0.1


class LeaderElectionSection(Section):
    """Election of the active replica."""

    leader_elect: bool = Field(
        default=True,
        description="Only the holder of the Lease schedules. Set it to false only for a single replica, such as in a "
        "test; a second one would allocate the same memory again.",
    )
    lease_duration_s: Seconds = Field(
        default=15.0,
        validation_alias="leaseDuration",
        ge=2,
        le=_LONGEST_LEASE_S,
        description="How long after the last renewal standbys wait, in whole seconds.",
    )
    renew_deadline_s: Seconds = Field(
        default=10.0,
        validation_alias="renewDeadline",
        ge=1,
        le=_LONGEST_LEASE_S,
        description="How long the leader continues if it cannot renew the Lease. Then it sends nothing until it has "
        "renewed it, and exits if another replica holds it. `bindTimeout` must be shorter than `leaseDuration` minus "
        "`renewDeadline`.",
    )
    retry_period_s: Seconds = Field(
        default=2.0,
        validation_alias="retryPeriod",
        ge=_SHORTEST_RETRY_S,
        le=_LONGEST_LEASE_S,
        description="How often the leader renews the Lease, and how long a replica waits before it retries.",
    )
    resource_lock: Literal["leases"] = Field(default="leases", description="Kind of lock.")
    resource_name: str = Field(
        default=names.SCHEDULER_NAME,
        pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$",
        max_length=253,
        description="Name of the Lease, the same for all schedulers that could allocate the same cards.",
    )
    resource_namespace: str = Field(
        default="kube-system",
        pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$",
        max_length=63,
        description="Namespace of the Lease, even if the scheduler runs in another one.",
    )

    @field_validator("lease_duration_s")
    @classmethod
    def _whole(cls, duration_s: float) -> float:
        if duration_s != int(duration_s):
            raise ValueError(f"expected whole seconds, as a Lease has them, found {duration.text(duration_s)}")
        return duration_s

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if not self.lease_duration_s > self.renew_deadline_s > self.retry_period_s:
            raise ValueError(
                "expected leaseDuration > renewDeadline > retryPeriod, found "
                f"{duration.text(self.lease_duration_s)}, {duration.text(self.renew_deadline_s)}, "
                f"{duration.text(self.retry_period_s)}"
            )
        return self
