"""Attention and transformer layers."""
