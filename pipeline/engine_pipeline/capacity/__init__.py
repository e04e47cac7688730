"""How much memory a model needs on a board, and what fits there. Pure."""
