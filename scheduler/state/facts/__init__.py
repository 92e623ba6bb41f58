"""What rules count of the pods on a node or card, and the table that keeps it true."""
