"""The cluster as columns: one row per node, one NumPy array per fact; and which pod is where.

Pure: no I/O, no clock, no logging. One owner, the event loop; no method awaits, so each one is atomic.
"""
