"""Which running pods to move, and where to, so that there is room for others: the plan of `defragment`.

It reads an engine and asks it questions; whatever it tries is taken back. It neither waits nor evicts: that is done by
`scheduler.cli`, on an operator's word.
"""
