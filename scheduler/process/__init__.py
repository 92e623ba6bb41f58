"""What both programs need to be a process: probes, a way to stop, a log.

Knows neither pods nor cards.
"""
