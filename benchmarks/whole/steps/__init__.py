"""Whole training steps of recipes beside the strongest peer's own."""
