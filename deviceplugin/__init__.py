"""The node daemon: announces the node's cards and gives each container exactly the cards that the scheduler chose.

`app` is the process, `node_plugin` assembles the parts, and `backends` picks NVML or simulated cards. Only they and
`cli` see the whole configuration. From the scheduler, this package may import only `kube` and `process`.
"""
