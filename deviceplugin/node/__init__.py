"""The node object: what is announced there and kept there, what is watched of it, the Events about it.

Knows the kubelet only as a list of devices.
"""
