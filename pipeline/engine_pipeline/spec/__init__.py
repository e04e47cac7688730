"""Specs and locks: what people write, and what it was pinned to."""
