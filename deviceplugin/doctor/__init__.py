"""Looks at a node from the plugin's point of view, and says what is wrong and what to do: docs/first-gpu-node.md.

Changes nothing. Only `cli` knows it.
"""
