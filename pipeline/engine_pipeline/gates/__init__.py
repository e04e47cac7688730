"""Judging an engine: golden prompts and measured speed against a live server, and a report.

`client`, `server`, `golden` and `performance` act, and `run` is the whole gate; everything else is
pure, `suite_file` aside, which reads suites.
"""
