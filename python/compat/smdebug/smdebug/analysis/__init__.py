"""Help for analysis."""
