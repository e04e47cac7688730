"""One module per verb, each with one click command called `command`; the table is in `cli.app`."""
