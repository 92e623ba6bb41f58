"""A cluster as a program sees it: the objects, the port that a real and a simulated cluster satisfy, watching it.

Decides nothing about pods. Speaks to nobody by itself: `rest` does that.
"""
