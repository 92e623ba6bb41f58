"""Policy: one rule, one file. A plugin judges rows of the tables; it never does I/O and never keeps a pod.

README.md beside this file says of each rule what it decides, when it rejects and with which words.
"""
