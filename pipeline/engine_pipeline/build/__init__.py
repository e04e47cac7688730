"""From a lock to an engine in the registry: plan, run, inspect, record."""
