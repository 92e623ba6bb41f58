"""Drift, which is whatever differs from what was decided: found in a slow loop, reported, where configured evicted.

Reads what the other parts know; gives no container anything. `node_plugin` alone knows it.
"""
