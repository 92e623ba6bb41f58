"""The groups of scenarios. A module has one function per group, from a source of chance and a number to a scenario."""
