"""The two configurations: their models, and how files, environment and flags are merged; reports all mistakes at once.

Knows no rule and no cluster. `load` reads files; the models are pure.
"""
