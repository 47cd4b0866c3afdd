"""An optimised function under JAX's transformations: two primitives, and the programs that they carry.

A program is a jaxpr, and is planned when it is evaluated or lowered, not before. What a transformation
makes of a program is another program: so each of them is planned as a whole, and keeps to the budget.
"""
