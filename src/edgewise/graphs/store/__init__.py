"""Graphs on disk: built by an external sort, checked by hashes, mapped instead of loaded."""
