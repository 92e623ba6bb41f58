"""The node: the cards announced to the API server and to the kubelet; its watches, writes and Events.

Queries neither the driver nor the kubelet itself: it receives the states of the cards and the records of the node.
"""
