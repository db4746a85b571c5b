"""Captures as files: reading what any runtime wrote, judging it, and judging the provenance of shipped ones.

Stands on the standard library, as all admission does.
"""
