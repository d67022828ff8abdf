"""`flask user`, continued: second factors."""

from sso import audit, endings, notices
from sso.cli import views
from sso.cli.commands import json_option
from sso.cli.output import print_json, print_line, print_table
from sso.cli.people import done, find_user, group, user_argument
from sso.extensions import db
from sso.store import factors

ALL = "All second factors"  # what the mail says was removed


@group.command("factors")
@user_argument
@json_option
def list_factors(who: str, as_json: bool) -> None:
    """List a person's second factors."""
    found = factors.of_user(find_user(who).id)
    shown = views.factors(found)
    if as_json:
        print_json({"factors": shown, "recovery_codes": found.recovery_codes})
        return
    print_table(("KIND", "NAME", "SINCE", "LAST USED"), [tuple(one.values()) for one in shown])
    print_line(f"Recovery codes left: {found.recovery_codes}")


@group.command("reset-factors")
@user_argument
@json_option
def reset_factors(who: str, as_json: bool) -> None:
    """Take all second factors away and end all sign-ins; the password alone signs in again."""
    user = find_user(who)
    removed = factors.of_user(user.id).count
    factors.remove_all(user.id)
    endings.sessions_of_user(user.id, "factors_reset")
    if removed:
        notices.factor_removed(user, ALL)
    db.session.commit()
    audit.event("factors_reset", user=user.id, factors=removed)
    done(user, as_json, f"{removed} second factors removed", factors_removed=removed)
