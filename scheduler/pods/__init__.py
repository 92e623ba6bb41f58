"""A pod's requests, read once from its object: resources, GPU memory, unsupported rules. Pure.

Independent of nodes and of the state of the cluster.
"""
