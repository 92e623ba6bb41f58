"""The cluster state as columns: one row per node, one NumPy array per quantity.

Also the node of each pod, and facts: counts of pods that rules read.

Pure: no I/O, no clock, no logging. The event loop owns it. No method awaits, so each one is atomic.
"""
