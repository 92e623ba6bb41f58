"""The web page: its viewers, its data, and the files for browsers. It only reads engine and tables.

Answers are made on the event loop, in slices of a millisecond or less: nothing is copied, and nothing is locked.
"""
