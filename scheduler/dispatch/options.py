"""Options of a running scheduler."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceOptions:
    """controller, instance: names of this scheduler and this process in Events.

    bind_timeout_s: for one bind request, > 0. max_binds_in_flight: concurrent bind requests, >= 1. fencing_delay_s: how
    long after the start or the election a bind request of the previous leader may still take effect.
    not_ready_after_s: this scheduler reports not ready after the API server has been down, or has rejected our
    credentials, for this long; > 0.
    """

    controller: str
    instance: str
    bind_timeout_s: float
    max_binds_in_flight: int
    fencing_delay_s: float
    not_ready_after_s: float
