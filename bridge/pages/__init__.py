"""The bridge's pages: where people sign in and answer what must not pass through a client.

A question in URL mode has one page, at `{pages}/{task id}/{key}`. It shows who asks what, to whoever signs in and may
answer, and takes one answer. Everybody else is told the same, whatever there is. Plain HTML, no script, no resource of
anybody's, nothing kept by caches, in no frame.
"""
