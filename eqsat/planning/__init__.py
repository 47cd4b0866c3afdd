"""From chosen terms to a plan: loops, chunk lengths, order, predicted peak and time.

`blocks` is the structure, `loops` builds it from terms, `liveness` simulates its memory, `chunks`
sizes its loops, `candidates` holds what came of them. `exploring` saturates a program and the bodies inside,
`sinking` moves large values into loops first, `search` tries caps and loop axes until something fits,
`plan` is what users see.
"""
