"""`make cluster`: a control plane, two nodes with simulated cards and both programs, up until `make cluster-down`.

parts        what it consists of, and installing the manifests
record       where it is written down in the user's cache, and the lock that says whether one is up
keeper       the process in the background that holds it
restarts     what dies in it is started again
leftovers    what is taken away after a keeper that was killed, or a machine that was switched off
__main__     the two commands, and what they say
"""
