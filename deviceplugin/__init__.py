"""The node daemon: announces the cards of its node, and gives each container the cards that the scheduler chose.

It carries decisions out and never makes one: where the scheduler's choice is missing or does not match, it refuses.
Shares `config` with the scheduler and never imports it.
"""
