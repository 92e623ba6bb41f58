"""Reads a pod's requests once from its object: resources, GPU memory and unsupported rules. Pure.

Independent of nodes and of the state of the cluster.
"""
