"""GGUF v3: bounded reader, rules, typed values, writer, and conversions that are not ours."""
