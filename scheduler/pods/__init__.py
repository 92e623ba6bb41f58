"""A pod's requests, read once from its object: resources, GPU memory, unsupported rules. Pure.

Knows neither nodes nor the state of the cluster.
"""
