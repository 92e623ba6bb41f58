"""Scheduling rules, one per file. A plugin evaluates rows of the tables, or the cards on them; it never does I/O.

It keeps no pods: the tables keep its counts as facts. `registry` lists the plugins. README.md is generated from them:
what each plugin decides, when it rejects, and with which reasons.
"""
