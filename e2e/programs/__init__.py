"""Our own programs and manifests as their users start and apply them."""
