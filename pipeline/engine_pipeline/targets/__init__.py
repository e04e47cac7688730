"""Places where a channel's release is served from: one module per kind."""
