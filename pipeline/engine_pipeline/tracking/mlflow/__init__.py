"""The MLflow mirror: written to, never read for a decision."""
