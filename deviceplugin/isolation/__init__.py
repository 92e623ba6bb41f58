"""Isolation of containers on a card: descriptions filled in, their directories, the daemons of MPS.

Knows cards by UUID and pods by what was decided for them; asks the driver for nothing but a card's compute mode.
"""
