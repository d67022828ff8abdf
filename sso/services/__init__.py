"""Use cases: every rule that pages, commands and jobs share.

A function takes the actor, writes one audit event (and those of what it ends), queues its
notification, and never commits. No HTTP and no click. `transaction` is for requests on hot paths.
"""
