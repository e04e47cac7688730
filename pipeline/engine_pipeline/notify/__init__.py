"""Webhooks: who is told of what, signed."""
