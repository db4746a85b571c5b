"""The text pipeline: chat rendering that keeps provenance, tokenizing, decoding, parsing, the vocabulary boundary."""
