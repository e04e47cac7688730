"""Runners: where a plan's steps are executed."""
