"""The rules language: from `.rules` text to checked rules.

`syntax` is what a rule is, `parse` reads text into it, `check` refuses what is not a sound shape
of rewrite. What the engine makes of a rule is not this package's business.
"""
