"""Clusters and workloads written down in a file, for demo, simulate, simulated cards and tests.

Knows what a manifest looks like, not who reads it.
"""
