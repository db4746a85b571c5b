"""The implementation under test; only `model`, `runtime`, `draft` and `replay` may import mlx."""
