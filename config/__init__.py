"""The contract between the scheduler and the device plugin, and what configures both. A leaf: imports neither program.

`protocol` goes over the wire, `settings` is what an operator says, `clusterfile` describes clusters that are not there.
"""
