"""Acts and judgements: specs, sources, runners, backends, gates, promotion rules, the CLI.

Keeps no state of its own: everything that must be remembered is in the registry.
"""
