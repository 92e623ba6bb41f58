"""A cluster in memory that behaves as an API server does, with faults to inject.

`World` is the cluster as its operator sees it (synchronous: make nodes, pods, bind as another scheduler would);
`MemoryCluster` is one client of it and satisfies `port.Cluster`. Several clients may share one world.
Owned by one event loop: nothing here is safe to call from another thread.
"""
