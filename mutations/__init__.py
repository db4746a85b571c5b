"""Batteries of deliberate mistakes, and the runner that asks which check catches each of them."""
