"""etcd and the Kubernetes servers on loopback ports, built from source, and the client for tests."""
