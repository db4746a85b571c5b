"""Captures: reading, writing and comparing them, collecting them from upstream, and the provenance of shipped ones."""
