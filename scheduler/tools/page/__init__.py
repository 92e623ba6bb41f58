"""Web page: its viewers, its data, and the files for browsers. It only reads engine and tables.

Answers are computed on the event loop, in slices of at most a millisecond, without copies and without locks.
"""
