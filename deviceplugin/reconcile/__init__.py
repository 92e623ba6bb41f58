"""Drift, any difference from the decisions: found in a slow loop, reported, and evicted if configured.

Reads the facts of other parts; allocates nothing. Only `node_plugin` imports it.
"""
