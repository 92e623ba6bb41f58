"""Which container gets which cards: the pods of the node, the rule that tells containers apart, Allocate.

Decides by what the scheduler wrote and the kubelet recorded; knows neither the driver nor the node object.
"""
