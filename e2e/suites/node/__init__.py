"""The device plugin on a real kubelet."""
