"""Settings of the reconcile loop."""

from dataclasses import dataclass
from pathlib import Path

from config.settings.deviceplugin import DevicePluginConfiguration
from deviceplugin.reconcile.drift import DriftPolicy


@dataclass(frozen=True, slots=True, kw_only=True)
class ReconcileSettings:
    """Settings. interval_s: between two rounds, >= 30. host_proc: `/proc` of the host's PID namespace.

    allowance_mib: MiB that a pod may use on a card beyond its request, or beyond its limit.
    """

    policy: DriftPolicy
    interval_s: float
    unit_mib: int
    allowance_mib: int
    host_proc: Path


def reconcile_settings(c: DevicePluginConfiguration) -> ReconcileSettings:
    """Return the settings in the plugin's configuration."""
    return ReconcileSettings(
        policy=DriftPolicy(
            monitor=c.monitor,
            evict_unregistered=c.evict_unregistered,
            evict_mismatched=c.evict_mismatched,
            evict_unscheduled=c.evict_unscheduled,
            announce_outside_use=c.announce_outside_use,
            enforcement_required=c.enforcement == "required",
        ),
        interval_s=c.reconcile_interval_s,
        unit_mib=c.memory_unit_mib,
        allowance_mib=c.monitor_allowance_mib,
        host_proc=Path(c.host_proc),
    )
