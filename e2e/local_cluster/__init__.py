"""`make cluster`: a control plane, two nodes with simulated cards and both programs, up until `make cluster-down`.

record       where it is written down in the user's cache, the lock of its keeper, and removing what it left
keeper       the process in the background that installs and holds it, and starts again what dies in it
__main__     the two commands, and what they say
"""
