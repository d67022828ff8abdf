"""What web, commands and jobs share: what ends what, which mails are owed, links in mails.

No HTTP and no click. Nothing here commits, but for `transaction`, which is a request's.
"""
