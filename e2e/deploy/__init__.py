"""What is deployed beside the programs, tried with the tools that read it."""
