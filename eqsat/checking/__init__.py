"""The checker: rules, facts and monoids tested from their own text.

A rule is a generator of programs: we draw terms that its left side matches, evaluate both sides with the
reference interpreter, and compare. Nothing here knows how the e-graph works, but for `firing`, which
lets the engine run a rule on its examples.
"""
