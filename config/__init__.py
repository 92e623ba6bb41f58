"""The contract between the scheduler and the device plugin, and the settings of both. A leaf: imports neither program.

`protocol` has the wire formats, `settings` the operator's configuration, `clusterfile` descriptions of simulated
clusters.
"""
