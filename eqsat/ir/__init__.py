"""The intermediate representation: terms over named axes.

`axis` and `ops` define the vocabulary, and `term` builds and interns terms. `schema` infers the axes,
dtype and open loops of a result, and `program` represents a function. `spec` checks that a program is
well-formed, and `interpret` defines what it means.
"""
