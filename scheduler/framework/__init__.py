"""Extension points, the state that crosses them, the runtime that runs a profile over the tables, and its messages.

Pure, and without policy: no rule about pods or nodes lives here, those are in `scheduler.plugins`.
"""
