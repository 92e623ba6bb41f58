"""The node: the cards announced to the API server and to the kubelet; its watches, writes and Events.

Asks neither the driver nor the kubelet itself: it is given the states of the cards and the records of the node.
"""
