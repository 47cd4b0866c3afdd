"""What every part of eqsat may use: units, records, deadlines, the folder of the cache."""
