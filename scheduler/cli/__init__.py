"""The commands: `gpushare-scheduler run | demo | simulate` and `kubectl inspect gpushare`."""
