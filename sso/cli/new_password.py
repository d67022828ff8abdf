"""Takes a new password: hidden from the terminal, or one line from standard input.

Never from the command line, where every user of the machine can read it.
"""

import sys
import warnings
from getpass import GetPassWarning

import click

from sso.cli.commands import Failure

stdin_option = click.option(
    "--password-stdin", is_flag=True, help="Read the password from one line of standard input."
)


def ask(password_stdin: bool) -> str:
    """The password. Raises `Failure` when there is none to be had."""
    if password_stdin:
        return _line()
    with warnings.catch_warnings():
        # Without a terminal getpass would warn and read the password visibly.
        warnings.simplefilter("error", GetPassWarning)
        try:
            answer = click.prompt("Password", hide_input=True, confirmation_prompt=True, err=True)
        except GetPassWarning:
            raise Failure("there is no terminal to ask on; use --password-stdin") from None
    return str(answer)


def _line() -> str:
    raw: bytes = sys.stdin.buffer.readline() if sys.stdin else b""
    try:
        # The newline goes, and nothing else: spaces may be part of a password.
        line = raw.decode("utf-8").removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError:
        raise Failure("the password on standard input is not UTF-8") from None
    if not line:
        raise Failure("there is no password on standard input")
    return line
