"""A cluster as a program sees it: objects, watches, and the port that real and simulated clusters implement.

Decides nothing about pods. Only `rest` opens connections.
"""
