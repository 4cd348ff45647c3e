"""Layers whose weights are bytes."""
