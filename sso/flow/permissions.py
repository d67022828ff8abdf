"""Permissions of administration: what there is, which roles have them, and what needs them.

Pages say what they need in the table of routes (`endpoints.routes`), services here in `SERVICES`.
Operators at the command line and programs with an API token need none: see `audit.Actor`.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import lru_cache

from sso.i18n.message import Message


class Permission(StrEnum):
    """A right of people who are signed in, beyond that over their own account."""

    READ_PEOPLE = "people-read"
    SUPPORT_PEOPLE = "people-support"
    WRITE_PEOPLE = "people-write"
    GROUPS = "groups"
    OWN_GROUPS = "own-groups"
    ATTRIBUTES = "attributes"
    APPLICATIONS = "applications"
    AUDIT = "audit"
    WEBHOOKS = "webhooks"
    MAIL = "mail"
    KEYS = "keys"
    API_TOKENS = "api-tokens"
    SERVER = "server"
    BRANDING = "branding"


# What each one allows, for the documentation.
MEANINGS: Mapping[Permission, str] = {
    Permission.READ_PEOPLE: "see people: profile, second factors, sessions, applications, activity",
    Permission.SUPPORT_PEOPLE: "invite people, mail them links, end their sessions, reset their "
    "second factors, change their pictures and the attributes that the helpdesk may change",
    Permission.WRITE_PEOPLE: "create, import, export, change, disable and delete people, also "
    "their groups and connected accounts",
    Permission.GROUPS: "create, rename, export and delete groups, and change their members "
    "and owners",
    Permission.OWN_GROUPS: "see, invite, add and remove the members of groups that one owns",
    Permission.ATTRIBUTES: "define attributes of people",
    Permission.APPLICATIONS: "register, change and delete applications, APIs and MCP servers, "
    "preview what they get of a person, see refused requests",
    Permission.AUDIT: "read, verify and export the audit trail",
    Permission.WEBHOOKS: "register, change, test and delete webhooks, whose events name people",
    Permission.MAIL: "see emails that wait, send them again, delete them",
    Permission.KEYS: "see, rotate and retire signing keys",
    Permission.API_TOKENS: "create and revoke API tokens",
    Permission.SERVER: "see and run the checks, see settings and sign-in providers, look up "
    "accounts in directories",
    Permission.BRANDING: "change the name, logo, color and links of pages and emails",
}

ADMIN, HELPDESK, OWNER = "admin", "helpdesk", "owner"
ROLES: Mapping[str, frozenset[Permission]] = {
    ADMIN: frozenset(Permission),
    HELPDESK: frozenset({Permission.READ_PEOPLE, Permission.SUPPORT_PEOPLE}),
    OWNER: frozenset({Permission.OWN_GROUPS}),  # of a group
}


@dataclass(frozen=True)
class Rights:
    """What somebody may do in the administration.

    `limits`: permissions that hold only for some groups and for their members, each with the names
    of these groups. `applications`: those that hold only for some applications, each with the
    client IDs. A permission is either in `permissions` or has limits, so that whatever asks for the
    former alone refuses those who are limited.
    """

    permissions: frozenset[Permission] = frozenset()
    limits: Mapping[Permission, frozenset[str]] = field(default_factory=dict)
    applications: Mapping[Permission, frozenset[str]] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.permissions or self.limits or self.applications)

    @property
    def limited(self) -> frozenset[Permission]:
        """The permissions that hold only for some groups or applications."""
        return frozenset({*self.limits, *self.applications})

    def holds(self, permission: Permission) -> bool:
        """Return whether there is a permission, if only for some groups or applications."""
        return permission in self.permissions or permission in self.limited

    def over(self, groups: Collection[str]) -> frozenset[Permission]:
        """Return the permissions that hold for a person in these groups."""
        return self.permissions.union(
            permission for permission, names in self.limits.items() if not names.isdisjoint(groups)
        )

    def covers(self, other: "Rights") -> bool:
        """Return whether these rights include all of somebody else's."""
        return other.permissions <= self.permissions and all(
            permission in self.permissions or names <= mine.get(permission, frozenset())
            for mine, theirs in (
                (self.limits, other.limits), (self.applications, other.applications)
            )
            for permission, names in theirs.items()
        )  # fmt: skip

    def over_client(self, client_id: str) -> frozenset[Permission]:
        """Return the permissions that hold for an application."""
        return self.permissions.union(
            permission for permission, ids in self.applications.items() if client_id in ids
        )

    def clients_for(self, permission: Permission) -> frozenset[str] | None:
        """Return the client IDs for which a permission holds; `None` if it has no limit."""
        if permission in self.permissions:
            return None
        return self.applications.get(permission, frozenset())

    def limited_to(self, needs: Iterable[Permission]) -> frozenset[str] | None:
        """Return the groups for which one of these permissions holds; `None` if it has no limit."""
        needs = tuple(needs)
        if not self.permissions.isdisjoint(needs):
            return None
        return frozenset[str]().union(*(self.limits.get(need, ()) for need in needs))

    def joined(self, other: "Rights") -> "Rights":
        """Return these rights and others together."""
        permissions = self.permissions | other.permissions
        limits, applications = (
            {
                permission: mine.get(permission, frozenset()) | theirs.get(permission, frozenset())
                for permission in {*mine, *theirs} - permissions
            }
            for mine, theirs in (
                (self.limits, other.limits), (self.applications, other.applications)
            )
        )  # fmt: skip
        return Rights(permissions, limits, applications)


# An API token may do everything that its scopes say, whatever its owner may do.
_NOT_IN_CUSTOM_ROLES = frozenset({Permission.API_TOKENS, Permission.OWN_GROUPS})
_IMPLY_READING = frozenset({Permission.SUPPORT_PEOPLE, Permission.WRITE_PEOPLE})


@lru_cache(maxsize=8)
def custom_roles(text: str) -> Mapping[str, frozenset[Permission]]:
    """Read the operator's roles: the permissions that each group gives. Raises `ValueError`.

    The text is like `auditors=audit people-read, support=people-support`.
    """
    roles: dict[str, frozenset[Permission]] = {}
    for entry in text.split(","):
        group, _, names = (part.strip() for part in entry.rpartition("="))
        if not group or not names:
            raise ValueError("give groups with permissions, such as: auditors=audit people-read")
        if group in roles:
            raise ValueError(f"the group {group} is there twice")
        roles[group] = _permissions(names.split())
    return roles


def _permissions(names: Iterable[str]) -> frozenset[Permission]:
    possible = [name for name in Permission if name not in _NOT_IN_CUSTOM_ROLES]
    for name in names:
        if name not in possible:
            raise ValueError(f"there is no permission {name} to give; known: {', '.join(possible)}")
    named = frozenset(map(Permission, names))
    return named | {Permission.READ_PEOPLE} if named & _IMPLY_READING else named


PEOPLE = frozenset({Permission.READ_PEOPLE, Permission.SUPPORT_PEOPLE, Permission.WRITE_PEOPLE})
LIMITABLE = PEOPLE | {Permission.GROUPS}
LIMITABLE_TO_APPLICATIONS = frozenset({Permission.APPLICATIONS, Permission.AUDIT})
MOST_LIMITS = 100  # groups or applications of a role


@dataclass(frozen=True)
class _Bounds:
    """What limits roles: groups, or applications."""

    noun: str
    nouns: str
    example: str
    limitable: frozenset[Permission]


_GROUPS = _Bounds("a group", "groups", "hr-paris=paris, hr-paris=lyon", LIMITABLE)
_CLIENTS = _Bounds(
    "a client ID", "applications", "wiki-team=wiki, wiki-team=wiki-test", LIMITABLE_TO_APPLICATIONS
)


@lru_cache(maxsize=8)
def role_limits(text: str, roles: str) -> Mapping[str, frozenset[str]]:
    """Read the groups that the operator's roles are limited to. Raises `ValueError`.

    The text is like `hr-paris=paris, hr-paris=lyon`. `roles`: as `custom_roles` reads them.
    """
    return _read_limits(text, roles, _GROUPS)


@lru_cache(maxsize=8)
def role_applications(text: str, roles: str) -> Mapping[str, frozenset[str]]:
    """Read the client IDs that the operator's roles are limited to. Raises `ValueError`.

    The text is like `wiki-team=wiki, wiki-team=wiki-test`. `roles`: as `custom_roles` reads them.
    """
    return _read_limits(text, roles, _CLIENTS)


def _read_limits(text: str, roles: str, bounds: _Bounds) -> Mapping[str, frozenset[str]]:
    permissions, limits = custom_roles(roles) if roles else {}, dict[str, frozenset[str]]()
    for entry in text.split(","):
        role, name = _limit(entry.strip(), permissions, bounds)
        limits[role] = limits.get(role, frozenset()) | {name}
        if len(limits[role]) > MOST_LIMITS:
            raise ValueError(f"the role {role} has more than {MOST_LIMITS} {bounds.nouns}")
    for role in limits:
        if unfit := sorted(permissions[role] - bounds.limitable):
            raise ValueError(
                f"the role {role} has permissions that cannot be limited to {bounds.nouns}: "
                f"{', '.join(unfit)}; give them in a role of their own. Possible are "
                f"{', '.join(name for name in Permission if name in bounds.limitable)}"
            )
    return limits


def _limit(entry: str, roles: Iterable[str], bounds: _Bounds) -> tuple[str, str]:
    """Return the role and the other name of an entry; both may have an equals sign."""
    for role in sorted(roles, key=len, reverse=True):
        mark, name = entry[len(role) :].lstrip()[:1], entry[len(role) :].lstrip()[1:].strip()
        if entry.startswith(role) and mark == "=" and name:
            return role, name
    raise ValueError(
        f"{entry or 'an entry'} does not name a role of SSO_ADMIN_ROLES and {bounds.noun}; give "
        f"them like this: {bounds.example}"
    )


Needs = tuple[Permission, ...]  # any of these

STAFF = tuple(permission for permission in Permission if permission != Permission.OWN_GROUPS)
LIMITED_STAFF = tuple(
    permission
    for permission in Permission
    if permission in LIMITABLE or permission in LIMITABLE_TO_APPLICATIONS
)
READ_PEOPLE: Needs = (Permission.READ_PEOPLE,)
SUPPORT_PEOPLE: Needs = (Permission.SUPPORT_PEOPLE,)
WRITE_PEOPLE: Needs = (Permission.WRITE_PEOPLE,)
CHANGE_PEOPLE: Needs = (Permission.SUPPORT_PEOPLE, Permission.WRITE_PEOPLE)
GROUPS: Needs = (Permission.GROUPS,)
MEMBERS: Needs = (Permission.GROUPS, Permission.OWN_GROUPS)
ATTRIBUTES: Needs = (Permission.ATTRIBUTES,)
APPLICATIONS: Needs = (Permission.APPLICATIONS,)
AUDIT: Needs = (Permission.AUDIT,)
WEBHOOKS: Needs = (Permission.WEBHOOKS,)
MAIL: Needs = (Permission.MAIL,)
KEYS: Needs = (Permission.KEYS,)
API_TOKENS: Needs = (Permission.API_TOKENS,)
SERVER: Needs = (Permission.SERVER,)
BRANDING: Needs = (Permission.BRANDING,)
# For everybody's own account, by jobs, or as a part of other services that have asked.
NONE: Needs = ()


def lacking(needs: Iterable[Permission]) -> Message:
    """Return the refusal of those who have none of these permissions."""
    names = ", ".join(needs)
    if "," in names:
        return Message("For this you need one of these permissions: %(names)s", names=names)
    return Message("For this you need the permission %(name)s.", name=names)


# The services that change something: module and function.
SERVICES: Mapping[str, Needs] = {
    **dict.fromkeys(
        ("accounts.create", "accounts.update", "accounts.disable", "accounts.enable",
         "accounts.delete",
         "credentials.set_password", "credentials.make_enrolment_link",
         "credentials.take_over_password", "declared_accounts.carry_out",
         "identities.remove_identity", "importing.add", "migrated_factors.take",
         "migrating.change_person", "migrating.take_people"),
        WRITE_PEOPLE,
    ),
    **dict.fromkeys(
        ("accounts.invite", "attributes.set_values", "authentication.end_some",
         "authentication.sign_out", "credentials.invite_again", "credentials.mail_password_reset",
         "credentials.request_verification", "credentials.reset_factors", "pictures.change"),
        CHANGE_PEOPLE,
    ),
    **dict.fromkeys(
        ("group_editing.create", "group_editing.change", "group_editing.delete",
         "group_owners.change"),
        GROUPS,
    ),
    **dict.fromkeys(("group_owners.add_member", "group_owners.remove_member"), MEMBERS),
    **dict.fromkeys(("attributes.define", "attributes.change", "attributes.delete"), ATTRIBUTES),
    **dict.fromkeys(
        ("agents.allow", "agents.block", "agents.remove", "apis.register", "apis.change",
         "apis.rotate_secret", "apis.disable", "apis.enable", "apis.delete", "clients.register",
         "clients.change", "clients.rotate_secret", "clients.limit_secret",
         "clients.end_old_secret", "clients.disable", "clients.enable", "clients.delete",
         "migrating.take_clients", "provisioning.set_token", "provisioning.ping",
         "provisioning.retry", "provisioning.repair"),
        APPLICATIONS,
    ),
    **dict.fromkeys(
        ("webhooks.create", "webhooks.change", "webhooks.disable", "webhooks.enable",
         "webhooks.ping", "webhooks.retry", "webhooks.delete"),
        WEBHOOKS,
    ),
    **dict.fromkeys(("mail_queue.resend", "mail_queue.resend_failed", "mail_queue.delete"), MAIL),
    **dict.fromkeys(("signing_keys.rotate", "signing_keys.retire"), KEYS),
    **dict.fromkeys(("api_tokens.create", "api_tokens.revoke"), API_TOKENS),
    "branding.change": BRANDING,
    **dict.fromkeys(
        ("accounts.announce_ends", "accounts.choose_language", "accounts.end_due",
         "accounts.end_memberships_due", "accounts.settle", "program_secrets.announce_ends",
         "accounts.sign_up", "accounts.take_effect", "agents.admit",
         "agents.register_itself", "api_tokens.end_of", "attributes.set_own",
         "attributes.set_at_sign_up",
         "authentication.accept_identity", "authentication.accept_password",
         "authentication.begin", "authentication.fail_second_factor", "authentication.step_up",
         "authentication.verify_password", "credentials.change_email",
         "credentials.change_password", "credentials.rename", "credentials.request_email_change",
         "credentials.request_password_reset", "credentials.request_sign_up",
         "credentials.reset_password", "credentials.verify_email", "devices.approve",
         "devices.deny", "identities.confirm_directory_account", "identities.confirm_session",
         "identities.disable_user", "identities.enable_user", "identities.end_sessions",
         "identities.link", "identities.resolve", "identities.take_over_profile",
         "identities.unlink", "pictures.set_own", "provisioning.note_given_up",
         "provisioning.note_sent",
         "revocation.deny_consent", "revocation.remember_consent",
         "revocation.withdraw_agents", "revocation.withdraw_consent",
         "second_factors.accept_emailed_code", "second_factors.add_passkey",
         "second_factors.add_totp", "second_factors.allow_by_link",
         "second_factors.allow_enrolment", "second_factors.record_recovery_code",
         "second_factors.remove_passkey", "second_factors.remove_totp",
         "second_factors.rename_passkey", "second_factors.renew_recovery_codes",
         "second_factors.request_emailed_code", "sign_in_codes.redeem",
         "sign_in_codes.request", "terms.accept"),
        NONE,
    ),
}  # fmt: skip

# The services that ask for which group and person, or for which application, a permission holds,
# and the permissions that may be limited there. All others refuse those who have limits.
LIMITED_SERVICES: Mapping[str, Needs] = {
    **dict.fromkeys(
        ("accounts.create", "accounts.update", "accounts.disable", "accounts.enable",
         "accounts.delete", "accounts.invite", "credentials.set_password",
         "credentials.make_enrolment_link", "identities.remove_identity"),
        WRITE_PEOPLE,
    ),
    **dict.fromkeys(
        ("attributes.set_values", "authentication.end_some", "authentication.sign_out",
         "credentials.invite_again", "credentials.mail_password_reset",
         "credentials.request_verification", "credentials.reset_factors", "pictures.change"),
        CHANGE_PEOPLE,
    ),
    **dict.fromkeys(("group_editing.change", "group_owners.remove_member"), GROUPS),
    **dict.fromkeys(
        ("clients.change", "clients.rotate_secret", "clients.limit_secret",
         "clients.end_old_secret", "clients.disable", "clients.enable",
         "provisioning.set_token", "provisioning.ping", "provisioning.retry"),
        APPLICATIONS,
    ),
}  # fmt: skip
