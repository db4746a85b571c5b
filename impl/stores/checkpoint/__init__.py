"""Checkpoints: readers, judges and writers of config, index, safetensors headers and payload."""
