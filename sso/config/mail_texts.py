"""The kinds of mail: what each says, and where its link leads."""

from dataclasses import dataclass, field
from string import Formatter

from sso.i18n import N_

EVERYWHERE = ("service", "address")  # the placeholders of all texts
WITH_SECRET = ""  # the link has a token that works once (`services.mail_links`)


@dataclass(frozen=True)
class Text:
    """One kind of mail. `jobs.mail` replaces the placeholders in braces."""

    subject: str
    paragraphs: tuple[str, ...]
    action: str | None = N_("Set a new password")  # on the link; None: there is no link
    # Not in the fingerprint of a text, which is made of its `repr`.
    page: str = field(default="/forgotten-password", repr=False)

    @property
    def placeholders(self) -> tuple[str, ...]:
        """Return the names in braces, except those of all kinds."""
        parts = (self.subject, *self.paragraphs, self.action or "")
        names = [name for part in parts for _, name, _, _ in Formatter().parse(part) if name]
        return tuple(dict.fromkeys(name for name in names if name not in EVERYWHERE))


_HOUR = N_("The link works once and is valid for one hour.")
_UNTIL = N_("The link works once, until {until}.")
_NOT_YOU = N_(
    "If this was not you, set a new password now with the link below. This "
    "also ends all your sessions."
)
# A new password removes no factor: the mailbox alone must not be enough for that.
_NOT_YOUR_FACTOR = N_(
    "If this was not you, someone else knows your password. Ask your "
    "administrator to reset your second factors now, then set a new password "
    "with the link below."
)
_IGNORE = N_("If you did not request this, ignore this email. Nothing will change.")

TEXTS = {
    "verify": Text(
        N_("Please confirm your email address"),
        (N_("Please confirm that {address} is your address at {service}."), _HOUR, _IGNORE),
        N_("Confirm this address"),
        WITH_SECRET,
    ),
    "change_email": Text(
        N_("Please confirm your new email address"),
        (
            N_(
                   "Please confirm that {address} is the new address of your account at "
                   "{service}."
               ),
            N_("Until then your old address stays in use."),
            _HOUR,
            _IGNORE,
        ),
        N_("Confirm the new address"),
        WITH_SECRET,
    ),
    "reset": Text(
        N_("Set a new password"),
        (
            N_(
                   "Someone, probably you, requested a new password for your account at "
                   "{service}."
               ),
            _HOUR,
            _IGNORE,
        ),
        page=WITH_SECRET,
    ),
    "invite": Text(
        N_("You are invited to {service}"),
        (
            N_(
                   "An account at {service} was created for you. Set a password to start using "
                   "it."
               ),
            _UNTIL,
            N_("After that, choose \"Forgot your password?\" on the sign-in page."),
        ),
        N_("Set a password"),
        WITH_SECRET,
    ),
    "sign_up": Text(
        N_("Finish creating your account"),
        (
            N_(
                   "Someone, probably you, wants to create an account at {service} with this "
                   "address."
               ),
            _HOUR,
            _IGNORE,
        ),
        N_("Create the account"),
        WITH_SECRET,
    ),
    "sign_in_code": Text(
        N_("Your sign-in code for {service}"),
        (
            N_("Enter this code on the page that requested it, to sign in to {service}:"),
            "{code}",
            N_(
                   "The code works once, for 10 minutes, and only in the browser that "
                   "requested it. Do not share it: no one from {service} will ever ask you for "
                   "it."
               ),
            _IGNORE,
        ),
        None,
    ),
    "no_sign_in_code": Text(
        N_("How to sign in to {service}"),
        (
            N_(
                "Someone, probably you, requested a code by email to sign in to your account at "
                "{service}."
            ),
            N_(
                "Your account is protected by more than a code. Sign in as usual: with your "
                "password and second factor, with a passkey, or with the account of your "
                "organization."
            ),
            _IGNORE,
        ),
        None,
    ),
    "directory_password": Text(
        N_("How to sign in to {service}"),
        (
            N_(
                "Someone, probably you, requested a new password for your account at "
                "{service}."
            ),
            N_("You sign in with {provider}. Change your password there."),
        ),
        None,
    ),
    "known_address": Text(
        N_("You already have an account"),
        (
            N_(
                   "Someone, probably you, tried to use this address for an account at "
                   "{service}."
               ),
            N_("There is one already. If you forgot its password, set a new one."),
            _IGNORE,
        ),
        N_("Forgot your password?"),
    ),
    "email_change_asked": Text(
        N_("Your email address is about to change"),
        (N_(
                "The email address of your account at {service} is about to change to "
                "{new_address}."
            ),
         _NOT_YOU),
    ),
    "email_changed": Text(
        N_("Your email address was changed"),
        (
            N_("The email address of your account at {service} is now {new_address}."),
            N_("If this was not you, contact your administrator immediately."),
        ),
        action=None,
    ),
    "account_deleted": Text(
        N_("Your account was deleted"),
        (
            N_(
                   "Your account at {service} was deleted, as requested on its account page. You "
                   "are signed out everywhere, and applications no longer have access."
               ),
            N_("If this was not you, contact your administrator immediately."),
        ),
        action=None,
    ),
    "account_ends": Text(
        N_("Your account at {service} ends soon"),
        (
            N_("Your account at {service} ends on {time}. From then on you cannot sign in."),
            N_("If you need it for longer, ask your administrator."),
        ),
        None,
    ),
    "memberships_end": Text(
        N_("Your membership of a group ends soon"),
        (
            N_(
                "On {time}, your membership of these groups at {service} ends: {groups}. The "
                "access that they give ends, too."
            ),
            N_("If you need it for longer, ask your administrator."),
        ),
        None,
    ),
    "api_tokens_end": Text(
        N_("API tokens of {service} expire soon"),
        (
            N_("These API tokens of {service} expire soon: {names}."),
            N_("Create new ones in administration, and give them to the programs."),
        ),
        None,
    ),
    "client_secrets_end": Text(
        N_("Client secrets of {service} end soon"),
        (
            N_("The client secrets of these applications end soon: {names}."),
            N_(
                "From then on nobody can sign in to them. Make new secrets in administration, "
                "and give them to the applications."
            ),
        ),
        None,
    ),
    "password_changed": Text(
        N_("Your password was changed"),
        (N_("The password of your account at {service} was changed."), _NOT_YOU),
    ),
    "new_browser": Text(
        N_("New sign-in to your account"),
        (
            N_(

                    "Someone signed in to your account at {service} from a new browser: "
                    "{browser}, from the IP address {network}, at {time}."

            ),
            N_("If this was you, you do not need to do anything."),
            _NOT_YOU,
        ),
    ),
    "agent_connected": Text(
        N_("An agent was connected to your account"),
        (
            N_("You allowed {client} to act for you at {service}, at {time}, from the IP address "
               "{network}."),
            N_("If this was you, you do not need to do anything."),
            N_("If this was not you, end the access of {client} on your account page now, and set "
               "a new password there."),
        ),
        N_("Go to your account"),
        "/account",
    ),
    "device_added": Text(
        N_("A device was signed in to your account"),
        (
            N_(
                   "You allowed {client} on a device to use your account at {service}, at {time}. "
                   "The request came from the IP address {network}, by this program: {program}."
               ),
            N_("If this was you, you do not need to do anything."),
            N_(
                   "If this was not you, withdraw the access of {client} on your account page "
                   "now, and set a new password there."
               ),
        ),
        N_("Go to your account"),
        "/account",
    ),
    "factor_added": Text(
        N_("A second factor was added to your account"),
        (N_("A second factor was added to your account at {service}: {factor}."), _NOT_YOUR_FACTOR),
    ),
    "factor_removed": Text(
        N_("A second factor was removed from your account"),
        (N_("A second factor was removed from your account at {service}: {factor}."), _NOT_YOU),
    ),
    "identity_added": Text(
        N_("A new way to sign in was added to your account"),
        (
            N_(
                   "You can now sign in to your account at {service} through {provider}, as "
                   "{account}."
               ),
            N_("If this was you, you do not need to do anything."),
            N_(
                   "If this was not you, remove it on your account page now, and set a new "
                   "password there."
               ),
        ),
        N_("Go to your account"),
        "/account",
    ),
    "identity_removed": Text(
        N_("A way to sign in was removed from your account"),
        (
            N_(
                   "Your account at {service} can no longer be used through {provider}, as "
                   "{account}."
               ),
            _NOT_YOU,
        ),
    ),
    "recovery_code_used": Text(
        N_("A recovery code was used"),
        (
            N_(
                   "One of the recovery codes of your account at {service} was used. "
                   "Codes left: {left}."
               ),
            N_("If this was you, you do not need to do anything."),
            _NOT_YOUR_FACTOR,
        ),
    ),
    "recovery_codes_made": Text(
        N_("New recovery codes were created"),
        (
            N_(
                   "New recovery codes were created for your account at {service}. The old ones"
                   " no longer work."
               ),
            _NOT_YOUR_FACTOR,
        ),
    ),
    "second_step_missing": Text(
        N_("Someone entered your password but did not finish signing in"),
        (
            N_(

                    "Someone entered the password of your account at {service} but not the "
                    "second factor: {browser}, from the IP address {network}, at {time}. No "
                    "one was signed in."

            ),
            N_("If this was you, you do not need to do anything."),
            N_(
                   "If this was not you, someone else knows your password. Set a new one now"
                   " with the link below."
               ),
        ),
    ),
    "enrolment_code": Text(
        N_("Your confirmation code for {service}"),
        (
            N_(
                   "With this code you can turn on two-step verification for your account at"
                   " {service}. Enter it on the page that requested it:"
               ),
            "{code}",
            N_(
                   "The code works once, for 10 minutes, and only in the browser that "
                   "requested it. Do not share it: no one from {service} will ever ask you for "
                   "it."
               ),
            N_(
                   "If this was not you, someone else knows your password. Set a new one now"
                   " with the link below."
               ),
        ),
    ),
}  # fmt: skip
