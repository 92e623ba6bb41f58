"""The two configurations: their models, how files, environment and flags become one, and every mistake at once.

Knows no rule and no cluster. `load` reads files; the models are pure.
"""
