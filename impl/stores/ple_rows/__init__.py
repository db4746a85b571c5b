"""PLE rows v1: tables, layout, reader and writer of the per-layer embedding rows."""
