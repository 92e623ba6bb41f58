"""Extension points, the state that plugins share, the runtime that runs a profile on the tables, and its messages.

Pure and free of policy: the rules about pods and nodes live in `scheduler.plugins`.
"""
