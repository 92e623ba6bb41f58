"""Clusters and workloads described in a file, for demo, simulate, simulated cards and tests.

Knows the format of a manifest, not its readers.
"""
