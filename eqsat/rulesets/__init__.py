"""Which rules a run uses: read, checked and compiled."""
