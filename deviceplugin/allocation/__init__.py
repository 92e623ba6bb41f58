"""Which container gets which cards: the pods of the node, the rule that tells containers apart, Allocate.

Decides by what the scheduler wrote and the kubelet recorded, never by what the driver says.
"""
