"""Pods that wait to be scheduled: active, backing off, unschedulable, in flight. Pure: time is an argument."""
