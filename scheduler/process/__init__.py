"""Process parts of both programs: probes and metrics, API connectivity, a way to stop, a log.

Knows neither pods nor cards.
"""
