"""Renderers of a run: HTML, Markdown and JUnit."""
