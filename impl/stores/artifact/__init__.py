"""The artifact: one GGUF file with three owners, what it must be, how it is admitted, and how it is made."""
