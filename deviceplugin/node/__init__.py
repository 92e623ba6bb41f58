"""The node object: what is announced there and kept there, what is watched of it, the Events about it.

Calls neither the driver nor the kubelet: it is given their cards and records.
"""
