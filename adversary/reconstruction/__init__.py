"""Rebuilding households from published tables: what is certain, what is likely, what stays open.

Everything here is validated on synthetic households only.
"""
