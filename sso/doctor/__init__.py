"""`flask doctor`: the server looks at itself, as its operator and as one of its clients.

Each check yields findings: what was seen and, unless all is well, the mend. A check never raises
what it can tell, and nothing that it tells is a secret.
"""
