"""Isolation of containers on a card: completed descriptions, their directories, and the MPS daemons.

Knows cards by UUID and pods by their decisions; uses the driver only for a card's compute mode.
"""
