"""The web page: who may see it, what it is sent, and the files that a browser shows. It only reads engine and tables.

Answers are made on the event loop, in slices of a millisecond or less: nothing is copied, and nothing is locked.
"""
