"""Contenders of attention where most pairs count: complete, causal and windowed."""
