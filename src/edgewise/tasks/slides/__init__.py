"""Whole-slide images."""
