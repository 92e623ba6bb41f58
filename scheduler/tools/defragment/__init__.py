"""`defragment`: finds running pods to move, and where to, so that a waiting pod fits; evicts them on request.

`planning` reads an engine and runs trials on it; it reverts every change that it tries. `evicting` carries out a plan.
"""
