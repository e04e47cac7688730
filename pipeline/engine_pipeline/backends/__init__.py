"""One folder per engine kind; `port` is what each of them offers."""
