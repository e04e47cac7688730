"""A report as one HTML page that needs nothing else: no script, no request, no other file."""
