"""Contenders of whole models and layers: what they share, and their peers."""
