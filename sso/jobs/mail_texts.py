"""What mails say, by kind."""

from dataclasses import dataclass

from sso.i18n import N_


@dataclass(frozen=True)
class Text:
    """One kind of mail. Words in braces are replaced by what is known when it is written."""

    subject: str
    paragraphs: tuple[str, ...]
    action: str | None = N_("Set a new password")  # on the link


_HOUR = N_("The link works once, and for an hour.")
_UNTIL = N_("The link works once, until {until}.")
_NOT_YOU = N_(
    "If this was not you, set a new password at once with the link below; "
    "this also ends all your sign-ins."
)
# A new password removes no factor: the mailbox alone must not be enough for that.
_NOT_YOUR_FACTOR = N_(
    "If this was not you, somebody else has your password. Ask your administrator at once to reset "
    "your second factors; then set a new password with the link below."
)
_IGNORE = N_("If you did not ask for this, ignore this mail: nothing will change.")

TEXTS = {
    "verify": Text(
        N_("Please confirm your email address"),
        (N_("Please confirm that {address} is your address at {host}."), _HOUR, _IGNORE),
        N_("Confirm this address"),
    ),
    "change_email": Text(
        N_("Please confirm your new email address"),
        (
            N_("Please confirm that {address} shall be the address of your account at {host}."),
            N_("Until then the old address counts."),
            _HOUR,
            _IGNORE,
        ),
        N_("Confirm the new address"),
    ),
    "reset": Text(
        N_("Set a new password"),
        (
            N_("Somebody, probably you, asked for a new password for your account at {host}."),
            _HOUR,
            _IGNORE,
        ),
    ),
    "invite": Text(
        N_("You are invited to {host}"),
        (
            N_("An account at {host} was made for you. Set a password, and it is yours."),
            _UNTIL,
            N_('After that, press "Forgot your password?" on the sign-in page.'),
        ),
        N_("Set a password"),
    ),
    "sign_up": Text(
        N_("Finish creating your account"),
        (
            N_("Somebody, probably you, wants an account at {host} with this address."),
            _HOUR,
            _IGNORE,
        ),
        N_("Create the account"),
    ),
    "known_address": Text(
        N_("You have an account already"),
        (
            N_("Somebody, probably you, wanted to use this address for an account at {host}."),
            N_("There is one already. If you forgot its password, set a new one."),
            _IGNORE,
        ),
        N_("Forgot your password?"),
    ),
    "email_change_asked": Text(
        N_("Your email address is about to be changed"),
        (N_("The address of your account at {host} is about to be changed to {new_address}."),
         _NOT_YOU),
    ),
    "email_changed": Text(
        N_("Your email address was changed"),
        (
            N_("The address of your account at {host} is {new_address} from now on."),
            N_("If this was not you, tell your administrator at once."),
        ),
        action=None,
    ),
    "password_changed": Text(
        N_("Your password was changed"),
        (N_("The password of your account at {host} was changed."), _NOT_YOU),
    ),
    "new_browser": Text(
        N_("New sign-in to your account"),
        (
            N_(
                "Somebody signed in to your account at {host} from a browser that is new to us: "
                "{browser}, from the network address {network}, at {time}."
            ),
            N_("If this was you, there is nothing to do."),
            _NOT_YOU,
        ),
    ),
    "factor_added": Text(
        N_("A second factor was added to your account"),
        (N_("A second factor was added to your account at {host}: {factor}."), _NOT_YOUR_FACTOR),
    ),
    "factor_removed": Text(
        N_("A second factor was removed from your account"),
        (N_("A second factor was removed from your account at {host}: {factor}."), _NOT_YOU),
    ),
    "recovery_code_used": Text(
        N_("A recovery code was used"),
        (
            N_("One of the recovery codes of your account at {host} was used. Codes left: {left}."),
            N_("If this was you, there is nothing to do."),
            _NOT_YOUR_FACTOR,
        ),
    ),
    "recovery_codes_made": Text(
        N_("New recovery codes were made"),
        (
            N_("New recovery codes were made for your account at {host}. The old ones do not work "
               "any more."),
            _NOT_YOUR_FACTOR,
        ),
    ),
    "second_step_missing": Text(
        N_("Somebody entered your password, and did not finish signing in"),
        (
            N_(
                "Somebody entered the password of your account at {host}, but not the second "
                "factor: {browser}, from the network address {network}, at {time}. "
                "Nobody was signed in."
            ),
            N_("If this was you, there is nothing to do."),
            N_("If this was not you, somebody else has your password. Set a new one at once with "
               "the link below."),
        ),
    ),
    "enrolment_code": Text(
        N_("Your confirmation code for {host}"),
        (
            N_("With this code, two-step verification can be turned on for your account at {host}. "
               "Enter it on the page that asked for it:"),
            "{code}",
            N_("The code works once, for 10 minutes, and only in the browser that asked for it. "
               "Do not tell it to anybody: no one from {host} will ever ask you for it."),
            N_("If this was not you, somebody else has your password. Set a new one at once with "
               "the link below."),
        ),
    ),
}  # fmt: skip
