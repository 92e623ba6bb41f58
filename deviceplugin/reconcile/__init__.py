"""Drift, which is whatever differs from what was decided: found in a slow loop, reported, where configured evicted.

Reads every other part; gives no container anything. `app`, `node_plugin` and `backends` alone know it.
"""
