"""What a pod asks, read once from its object: resources, GPU memory, what no rule supports. Pure.

Knows neither nodes nor the state of the cluster.
"""
