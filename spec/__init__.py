"""What must hold: contracts as frozen data, the rules they obey, and the documents that assay writes.

Imports the standard library and pydantic only, so that admission runs where numpy and mlx can't be imported.
"""
