"""A cluster as a program sees it: the objects, the port that a real and a simulated cluster satisfy, watching it.

Decides nothing about pods. Only `rest` opens connections.
"""
