"""The device plugin measured: a node that is an object only, a double for its kubelet."""
