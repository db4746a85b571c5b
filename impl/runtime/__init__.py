"""Streams experts and embedding rows from disk: exact reads on time, and predictions that can only move bytes."""
