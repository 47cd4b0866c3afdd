"""The checker, which tests rules, facts and monoids on random data.

A rule generates programs. The checker draws terms that its left side matches, evaluates both sides with
the reference interpreter, and compares the results. It uses the e-graph only to find out whether and
when a rule fires: `firing` runs rules on their examples, `endless` looks for rules that never terminate,
and `absence` explains why a rule does not fire.
"""
