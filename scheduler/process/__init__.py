"""Parts shared by both programs: probes and metrics, API connectivity, a way to stop, and logging.

Independent of pods and cards.
"""
