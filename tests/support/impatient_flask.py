"""`flask`, whose progress bars wait for nothing: `python -m tests.support.impatient_flask`."""

import sys

from flask.cli import main

from sso.cli import output

if __name__ == "__main__":
    output.AFTER = 0
    sys.argv[0] = "flask"
    main()
