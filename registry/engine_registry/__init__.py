"""Facts of a build pipeline: bytes, digests, manifests, records, releases, events, channels.

Never imports the pipeline. Start reading at `store` (the ports), `layout` (where things lie) and
`registry` (the acts).
"""
