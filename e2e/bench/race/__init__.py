"""One backlog for each scheduler in turn: the rows, their pods and checks, one run, the table."""
