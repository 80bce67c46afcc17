"""Backends in C++, for the CPU."""
