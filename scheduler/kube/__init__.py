"""A cluster from a program's view: objects, watches, and the port that real and simulated clusters satisfy.

Decides nothing about pods. Only `rest` opens connections.
"""
