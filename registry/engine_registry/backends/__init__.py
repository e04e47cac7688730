"""Adapters of the store ports, one per kind of store."""
