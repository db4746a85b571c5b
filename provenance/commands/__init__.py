"""One module a command of `assay`; each has `configure(parser)` and `run(arguments)`."""
