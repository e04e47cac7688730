"""Bake-offs: the same suites and loads on several engines and endpoints, and which one to take."""
