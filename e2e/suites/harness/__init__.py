"""The control plane, the nodes and the local cluster that the tests start."""
