"""What a node says of its cards, what a pod holds of them, and the columns of both."""
