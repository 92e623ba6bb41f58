"""Examples for other projects, against their own definitions, and Kueue itself."""
