"""`make cluster`: a control plane, two nodes with simulated cards and both programs, in the foreground until Ctrl-C.

While it is up, `home()` in the user's cache holds what its user needs:

kubeconfig    of the cluster's administrator
bin/          links to kubectl, its plugins and our programs
faults/n1     link to the socket by which faults happen to the cards of n1; of each node

cluster      installs and holds it, and starts again what dies in it
__main__     builds what is missing, and asks for root
"""
