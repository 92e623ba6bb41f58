"""Pods that wait to be scheduled: active, backing off, unschedulable, in flight. Pure: the caller passes the time."""
