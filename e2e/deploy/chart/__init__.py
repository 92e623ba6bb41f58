"""The chart with helm itself: rendered, refused, installed on a real API server; its alert rules with promtool."""
