"""Whole layers and steps beside other libraries."""
