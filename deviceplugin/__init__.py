"""The node daemon: announces the node's cards and gives each container exactly those that the scheduler chose.

`app` is the process, `node_plugin` puts the parts together, `backends` picks NVML or simulated cards; they alone, and
`cli`, see the whole configuration. Of the scheduler it may import `kube` and `process`, and nothing else.
"""
