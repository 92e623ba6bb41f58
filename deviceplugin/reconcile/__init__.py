"""Drift, every difference from the decisions: found in a slow loop, reported, and evicted if configured.

Reads what the other parts know; gives no container anything. `node_plugin` alone knows it.
"""
