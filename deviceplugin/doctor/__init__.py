"""Checks a node from the plugin's point of view, with a remedy for each problem: docs/first-gpu-node.md.

Changes nothing. Only `cli` knows this package.
"""
