"""Decides which container gets which cards: the node's pods, the rule that identifies containers, and Allocate.

Relies on what the scheduler wrote and the kubelet recorded; knows neither the driver nor the node object.
"""
