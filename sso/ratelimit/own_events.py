"""Events of what people have done for themselves: anyone who is signed in can repeat it in a loop.

Each person has a budget of rows in the audit trail for each kind of event, and it is told once when
that is used up. The line on the log is written anyway.
"""

from uuid import UUID

from sso import audit
from sso.ratelimit import limiting

AN_HOUR = 300  # rows of a kind for one person; applications that look each minute need fewer


def tell(name: str, user: UUID, **fields: object) -> None:
    """As `audit.event`, of this person."""
    count = limiting.storage().increase(f"events/{name}/{user}", limiting.HOUR)
    tell_it = audit.event if count <= AN_HOUR else audit.on_log_alone
    tell_it(name, user=user, **fields)
    if count == AN_HOUR + 1:
        audit.event(f"{name}_limited", user=user, count="of user")
