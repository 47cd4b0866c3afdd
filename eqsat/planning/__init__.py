"""From chosen terms to a plan: loops, chunk lengths, order, predicted peak and time.

`blocks` is the structure, `loops` builds it from terms, `liveness` simulates its memory, `chunks`
sizes its loops, `candidates` holds what came of them. `rematerialisation` adds loops that compute large
operands inside, `search_space` saturates a program and the bodies inside, and `capped_extraction` takes
candidates from it, under caps on what they store.
"""
