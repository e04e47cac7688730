"""Promotion and rollback: policy, the rules over values, and the two acts."""
