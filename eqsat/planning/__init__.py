"""From chosen terms to a plan: loops, chunk lengths, order, predicted peak and time.

`blocks` defines the structure, `loops` builds it from terms, `liveness` simulates its memory, `chunks` sizes
its loops, and `candidates` holds the results. `rematerialisation` adds loops that compute large operands
inside, `search_space` saturates a program and the bodies of its calls, and `capped_extraction` extracts
candidates from it under caps on the size of stored values.
"""
