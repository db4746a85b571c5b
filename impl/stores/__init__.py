"""Readers, writers and verifiers of what lies on disk: checkpoints, stores, artifacts."""
