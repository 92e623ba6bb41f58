"""`defragment`: which running pods to move, and where to, so that a waiting pod fits; and their eviction when asked.

`planning` reads an engine and asks it questions; it reverts every change that it tries. `evicting` carries a plan out.
"""
