"""Qwen4Exp in MLX: the graph of the whole model, one module a mechanism, and one point at which state is published."""
