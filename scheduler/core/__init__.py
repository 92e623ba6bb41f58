"""Decisions: node and cards for each pod, the victims of preemption, and the answers to what-if queries. Pure.

`engine` is the only public entry point; `build` assembles it.
"""
