"""Helpers that every part of eqsat may use: units, records, deadlines, the cache folder."""
