"""The rules language: reads the text of `.rules` files and checks the rules in it.

`syntax` defines the abstract syntax of rules, `parse` reads text into it, and `check` rejects rules
that cannot be sound. How the engine runs a rule is defined in `eqsat.engine`.
"""
