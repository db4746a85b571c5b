"""The mathematics in plain NumPy and the text pipeline in plain Python: slow, readable, independent."""
