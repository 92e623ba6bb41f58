"""Checks whether pods and nodes of gpushare-scheduler-extender can be taken over."""
