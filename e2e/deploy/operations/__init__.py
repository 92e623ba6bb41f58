"""Changes of an installation, and the way back from a migration, typed as the documents have them."""
