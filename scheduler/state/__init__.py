"""The cluster as columns: one row per node, one NumPy array per quantity; the node of each pod; and facts for rules.

Pure: no I/O, no clock, no logging. The event loop owns it. No method awaits, so each one is atomic.
"""
