"""Every SQL statement. A function here states one thing that the database shall do or tell.

It never commits: the endpoint, command or job that calls it owns the transaction.
"""
