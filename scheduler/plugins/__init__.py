"""The rules: one rule, one file. A plugin evaluates rows of the tables, or the cards on them; it never does I/O.

It keeps no pods: its counts are facts, kept by the tables. `registry` lists the plugins. README.md is generated from
them: what each decides, when it rejects, with which reasons.
"""
