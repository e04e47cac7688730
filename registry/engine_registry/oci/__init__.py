"""Engines in OCI registries: pushed as what they are, pulled as what was recorded.

`push` and `pull` are the acts; `Remote` is one repository of a registry over HTTP. The client is
our own because a manifest has to arrive byte for byte, with its referrers, on servers with and
without the referrers API; the Python libraries at hand write manifests anew or lack that part.

Source: OCI distribution-spec 1.1.
"""
