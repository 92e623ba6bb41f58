"""Why a pod is pending, card by card, and how many copies of a pod would fit.

The engine's own rules answer; no module here knows a rule. Pure. It asks an engine that schedules nothing: pods are
removed and restored, or placed, in its tables.
"""
