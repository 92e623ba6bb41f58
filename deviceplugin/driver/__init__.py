"""The cards that a driver names and their readings: NVML and simulated cards behind one port.

Knows neither the node object nor the kubelet. The calls of a `CardSource` block; `supervisor` keeps the event loop
free.
"""
