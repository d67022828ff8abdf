"""What mails say: a subject, paragraphs, and the words on the link, by kind."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Text:
    """One kind of mail. Words in braces are replaced by what is known when it is written."""

    subject: str
    paragraphs: tuple[str, ...]
    action: str | None = None


_HOUR = "The link works once, and for an hour."
_NOT_YOU = (
    "If this was not you, set a new password at once with the link below; "
    "this also ends all your sign-ins."
)
_IGNORE = "If you did not ask for this, ignore this mail: nothing will change."

TEXTS = {
    "verify": Text(
        "Please confirm your e-mail address",
        ("Please confirm that {address} is your address at {host}.", _HOUR, _IGNORE),
        "Confirm this address",
    ),
    "change_email": Text(
        "Please confirm your new e-mail address",
        (
            "Please confirm that {address} shall be the address of your account at {host}.",
            "Until then the old address counts. " + _HOUR,
            _IGNORE,
        ),
        "Confirm the new address",
    ),
    "reset": Text(
        "Set a new password",
        (
            "Somebody, probably you, asked for a new password for your account at {host}.",
            _HOUR,
            _IGNORE,
        ),
        "Set a new password",
    ),
    "invite": Text(
        "You are invited to {host}",
        (
            "An account at {host} was made for you. Set a password, and it is yours.",
            _HOUR + ' After that, press "Forgot your password?" on the sign-in page.',
        ),
        "Set a password",
    ),
    "sign_up": Text(
        "Finish making your account",
        ("Somebody, probably you, wants an account at {host} with this address.", _HOUR, _IGNORE),
        "Make the account",
    ),
    "known_address": Text(
        "You have an account already",
        (
            "Somebody, probably you, wanted to use this address for an account at {host}.",
            "There is one with this address already. If you forgot its password, set a new one.",
            _IGNORE,
        ),
        "Forgot your password?",
    ),
    "email_change_asked": Text(
        "Your e-mail address is about to be changed",
        ("The address of your account at {host} is about to be changed to {new_address}.",
         _NOT_YOU),
        "Set a new password",
    ),
    "email_changed": Text(
        "Your e-mail address was changed",
        (
            "The address of your account at {host} is {new_address} from now on.",
            "If this was not you, tell your administrator at once.",
        ),
    ),
    "password_changed": Text(
        "Your password was changed",
        ("The password of your account at {host} was changed.", _NOT_YOU),
        "Set a new password",
    ),
    "new_browser": Text(
        "New sign-in to your account",
        (
            "Somebody signed in to your account at {host} from a browser that is new to us: "
            "{browser}, from the network address {network}, at {time}.",
            "If this was you, there is nothing to do.",
            _NOT_YOU,
        ),
        "Set a new password",
    ),
    "factor_added": Text(
        "A second factor was added to your account",
        ("A second factor was added to your account at {host}: {factor}.", _NOT_YOU),
        "Set a new password",
    ),
    "factor_removed": Text(
        "A second factor was removed from your account",
        ("A second factor was removed from your account at {host}: {factor}.", _NOT_YOU),
        "Set a new password",
    ),
}  # fmt: skip
