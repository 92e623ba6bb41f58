"""Extension points, the state that they pass on, the runtime that runs a profile over the tables, and its messages.

Pure and free of policy: the rules about pods and nodes live in `scheduler.plugins`.
"""
