"""The backends, by device."""
