"""Gates: named checks of named components, each leaving one evidence record."""
