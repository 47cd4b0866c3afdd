"""The e-graph engine: rules and programs in, the chosen program out.

`encode` writes programs and `compile` writes rules as egglog text, `egraph` is the only module that
imports egglog, `saturate` runs the rules within limits, `snapshot` is the saturated graph as Python
data, `cost` and `extract` choose a program from it.
"""
