"""Where evidence comes from and what it allows: gates, ledger, status, capture and the command line."""
