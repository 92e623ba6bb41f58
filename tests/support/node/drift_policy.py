"""The actions on drift: the device plugin's defaults, except for values that a test sets."""

from config.settings.deviceplugin import Monitor
from deviceplugin.reconcile.drift import DriftPolicy


def drift_policy(
    monitor: Monitor = "warn",
    *,
    evict_unregistered: bool = False,
    evict_mismatched: bool = False,
    evict_unscheduled: bool = False,
    announce_outside_use: bool = False,
    enforcement_required: bool = False,
) -> DriftPolicy:
    return DriftPolicy(
        monitor=monitor,
        evict_unregistered=evict_unregistered,
        evict_mismatched=evict_mismatched,
        evict_unscheduled=evict_unscheduled,
        announce_outside_use=announce_outside_use,
        enforcement_required=enforcement_required,
    )
