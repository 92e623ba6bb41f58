"""Extension points, the state that crosses them, and the runtime that runs a profile over the tables.

Pure, and without policy: no rule about pods or nodes lives here, those are in `scheduler.plugins`.
"""
