"""Explains why a pod is Pending, card by card, and how many copies of a pod would fit.

The engine's own rules answer; no module here contains rules. Pure. It uses an engine that schedules nothing: pods are
removed and restored, or placed, in its tables.
"""
