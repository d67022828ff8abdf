"""Every SQL statement. A function here does one thing in the database, or asks one question.

None commits: the endpoint, command or job that calls it owns the transaction.
"""
