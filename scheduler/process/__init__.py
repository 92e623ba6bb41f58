"""What both programs need to be a process: probes and metrics, contact with the API server, a way to stop, a log.

Knows neither pods nor cards.
"""
