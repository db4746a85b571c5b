"""assay: contracts, oracles, fixtures and evidence for porting a model family."""

__version__ = "0.1.0"
