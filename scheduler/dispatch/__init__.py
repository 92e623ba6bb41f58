"""Carries out decisions of the core: Bindings, evictions, nominations, claims, conditions and Events."""
