"""Both programs as they are installed, and the commands of the documents."""
