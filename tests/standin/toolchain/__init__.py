"""The tools themselves; they run on the standard library alone, wherever they were installed."""
