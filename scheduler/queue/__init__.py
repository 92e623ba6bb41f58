"""Pods that wait: active, backing off, unschedulable, in flight. Pure: time arrives as an argument."""
