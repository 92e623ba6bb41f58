"""The cluster as columns: one row per node, one NumPy array per quantity; which pod is where; the facts of rules.

Pure: no I/O, no clock, no logging. One owner, the event loop; no method awaits, so each one is atomic.
"""
