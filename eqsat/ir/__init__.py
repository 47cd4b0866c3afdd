"""The intermediate representation: terms over named axes.

`axis` and `ops` are the vocabulary, `term` builds and interns terms, `schema` says what each op
makes of its arguments' axes, `program` is a function's worth of terms, `spec` states what a
well-formed program is and `interpret` what it means.
"""
