"""Policy: one rule, one file. A plugin judges rows of the tables, or the cards on them; it never does I/O.

It keeps no pod either: what it counts is a fact, kept by the tables. `registry` lists the plugins; README.md is
generated from them: what each decides, when it rejects, with which reasons.
"""
