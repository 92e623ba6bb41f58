"""Decides: which node and cards each pod gets, whom to preempt, and what would help. Pure.

`engine` is its only door; `build` puts it together.
"""
