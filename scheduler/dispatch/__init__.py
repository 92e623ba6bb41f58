"""Sends what the core has decided: Bindings, evictions, nominations, claims, conditions and Events."""
