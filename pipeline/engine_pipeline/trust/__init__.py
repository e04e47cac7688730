"""Who vouches for what: keys, signatures over statements, and what a channel asks of them."""
