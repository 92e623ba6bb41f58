"""Why a pod waits, card by card, and how many copies of a pod would fit.

The engine's own rules answer; nothing here knows a rule. Pure. It asks an engine that nobody schedules by: pods are
taken away and put back, or placed, in its tables.
"""
