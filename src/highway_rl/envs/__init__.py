"""Environments and model generators."""
