"""Use cases: every rule that pages, commands and jobs share.

A function takes who acts, writes one audit event (besides those of what it ends), queues its
notification, and never commits. No HTTP and no click. `transaction` is a request's.
"""
