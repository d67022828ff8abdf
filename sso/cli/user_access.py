"""`flask user`, continued: passwords, sessions, and who is let in."""

from sso import audit, clock
from sso.audit.events import Event
from sso.cli import registration, views
from sso.cli.commands import confirm, json_option, yes_option
from sso.cli.new_password import ask, stdin_option
from sso.cli.output import print_json, print_table
from sso.cli.people import done, find_user, group, show_user, user_argument
from sso.extensions import db
from sso.services import notifications, revocation
from sso.store import sessions, users


@group.command("set-password")
@user_argument
@stdin_option
@json_option
def set_password(who: str, password_stdin: bool, as_json: bool) -> None:
    """Give a person a new password; all sessions and tokens end."""
    user = find_user(who)
    registration.set_password(user, ask(password_stdin))
    revocation.everything_of_user(user.id, "password_changed")
    notifications.password_changed(user)
    audit.event(Event.PASSWORD_SET, user=user.id)
    db.session.commit()
    done(user, as_json, "the password is set", password_set=True)


@group.command("disable")
@user_argument
@json_option
def disable(who: str, as_json: bool) -> None:
    """Shut a person out, at once; all sessions and tokens end."""
    user = find_user(who)
    user.disabled_at = user.disabled_at or clock.now()
    revocation.everything_of_user(user.id, "user_disabled")
    audit.event(Event.USER_DISABLED, user=user.id)
    db.session.commit()
    show_user(user, as_json)


@group.command("enable")
@user_argument
@json_option
def enable(who: str, as_json: bool) -> None:
    """Let a person in again; ended sessions stay ended."""
    user = find_user(who)
    user.disabled_at = None
    audit.event(Event.USER_ENABLED, user=user.id)
    db.session.commit()
    show_user(user, as_json)


@group.command("delete")
@user_argument
@yes_option
@json_option
def delete(who: str, yes: bool, as_json: bool) -> None:
    """Delete a person with sessions, tokens and consents."""
    user = find_user(who)
    confirm(f"Delete {user.email} ({user.id})?", yes)
    revocation.everything_of_user(user.id, "user_deleted")
    users.remove(user)
    audit.event(Event.USER_DELETED, user=user.id)
    db.session.commit()
    done(user, as_json, "deleted", deleted=True)


@group.command("sessions")
@user_argument
@json_option
def list_sessions(who: str, as_json: bool) -> None:
    """List the browsers on which a person is signed in."""
    found = sessions.of_user(find_user(who).id)
    if as_json:
        print_json([views.session(session) for session in found])
    else:
        print_table(
            ("SESSION", "SIGNED IN", "LAST SEEN", "ADDRESS", "BROWSER"),
            [(s.id, s.auth_time, s.last_seen_at, s.address, s.browser) for s in found],
        )


@group.command("sign-out")
@user_argument
@json_option
def sign_out(who: str, as_json: bool) -> None:
    """Sign a person out everywhere; tokens with offline_access go on, as after any sign-out."""
    user = find_user(who)
    count = revocation.sessions_of_user(user.id, "operator")
    db.session.commit()
    done(user, as_json, f"{count} sessions ended", sessions_ended=count)
