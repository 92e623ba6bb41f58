"""The node daemon: announces the node's cards and gives each container exactly those that the scheduler chose."""
