"""Checks whether this scheduler can take over pods and nodes of gpushare-scheduler-extender."""
