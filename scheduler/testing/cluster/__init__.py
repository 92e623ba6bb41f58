"""A cluster in memory that behaves like an API server, with injectable faults.

`World` is the cluster from its operator's view (synchronous: create nodes and pods, bind as another scheduler would).
`MemoryCluster` is one client of it and implements `port.Cluster`. Several clients may share one world.
Owned by one event loop: nothing here is thread-safe.
"""
