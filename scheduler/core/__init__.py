"""Chooses node and cards for each pod, the victims of preemption, and the answer to a what-if query. Pure.

`engine` is the only public entry; `build` assembles it.
"""
