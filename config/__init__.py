"""The contract between the scheduler and the device plugin: names, codecs and configuration models.

A leaf: it imports neither program. Everything but `load`, `logs` and `document` is free of I/O.
"""
