"""The contract between the scheduler and the device plugin: names, codecs and configuration models.

A leaf: it imports neither program. Everything but `load` is free of I/O.
"""
