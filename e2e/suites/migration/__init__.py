"""Migration from the legacy extender, its device plugin and kube-scheduler."""
