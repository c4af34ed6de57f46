"""Directives of this documentation."""
