"""better-auth, as the input of a migration: its database, in SQLite or PostgreSQL.

Its adapters write names in camel case or in snake case, in the singular or the plural.
"""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field

from sso import clock
from sso.crypto import foreign_hashes, secrets
from sso.flow import attributes
from sso.imports import better_auth_clients, databases, foreign_factors, foreign_tables, reading
from sso.imports.better_auth_clients import SUBJECTS, Context
from sso.imports.better_auth_secrets import Secrets
from sso.imports.databases import Source
from sso.imports.drafts import Answers
from sso.imports.files import Advance, Scratch
from sso.imports.findings import Fate, Finding
from sso.imports.foreign_factors import BROKEN_KEYS, MOST_PASSKEYS, OTHER_APPS, OTHER_HOST
from sso.imports.foreign_tables import Database, Reference, Row
from sso.imports.keycloak_credentials import MORE_APPS
from sso.imports.person import (
    APPS,
    CODES,
    SHOWN,
    FileProblem,
    Person,
    exact,
    flag,
    json_value,
    text,
    texts,
)
from sso.imports.system import System

KIND = "better-auth"
MOST_GROUPS, MOST_CLIENTS, MOST_PROVIDERS = 20_000, 5_000, 1_000
LOCKED_APPS = f"{APPS}: the secret is missing, or another (see --auth-secret)"
LOCKED_CODES = f"{CODES}: the secret is missing, or another (see --auth-secret)"
SENT_CODES = "second factors by codes that are sent"
ANONYMOUS = "is anonymous"
UNTIL = "banned until a later time, but disabled here until somebody enables them"
_PASSWORD = "credential"  # noqa: S105 (the provider of passwords)
_USUAL_ROLE = "user"
_BASE32 = "base32:"
_MOST_CODES = 50
_CODE = range(8, 101)  # characters
# Fields by model. The key of a model belongs to people.
_FIELDS: Mapping[str, tuple[str, ...]] = {
    "user": (
        "id", "name", "email", "emailVerified", "image", "role", "banned", "banExpires",
        "username", "twoFactorEnabled", "isAnonymous", "phoneNumber", "phoneNumberVerified",
        "locale",
    ),
    "account": ("userId", "providerId", "accountId", "password"),
    "twoFactor": ("userId", "secret", "backupCodes", "verified"),
    "passkey": ("userId", "name", "publicKey", "credentialID", "counter", "transports"),
    "oauthConsent": ("userId", "clientId", "scopes", "consentGiven"),
    "oauthClient": (
        "clientId", "clientSecret", "clientDiscoveryId", "disabled", "skipConsent", "subjectType",
        "scopes", "name", "uri", "icon", "redirectUris", "postLogoutRedirectUris",
        "backchannelLogoutUri", "tokenEndpointAuthMethod", "jwks", "jwksUri", "grantTypes",
        "requirePKCE", "dpopBoundAccessTokens", "referenceId", "metadata",
    ),
    "oauthApplication": (
        "clientId", "clientSecret", "redirectURLs", "type", "disabled", "name", "icon", "metadata",
    ),
    "jwks": ("alg", "createdAt"),
}  # fmt: skip
_OF_PERSON = ("account", "twoFactor", "passkey", "oauthConsent")
# Tables of what is not taken: what it is, and what to do.
_OTHERS: Mapping[str, tuple[str, str]] = {
    "organization": ("organizations", "make groups of them: docs/how-to/users-and-groups.md"),
    "oauthResource": ("protected resources", "register them: docs/how-to/apis.md"),
    "ssoProvider": ("sign-in providers", "configure them here: docs/how-to/upstream.md"),
    "apikey": ("API keys", "see: docs/how-to/provision.md"),
    "walletAddress": ("wallets", "let people set a password or a passkey"),
}


@dataclass(frozen=True)
class _Model:
    """A table with its columns, by field."""

    table: str
    columns: Mapping[str, str]

    def reference(self, key: str) -> Reference:
        return Reference(self.table, tuple(self.columns.values()), self.columns.get(key, key))

    def entry(self, row: Row) -> Row:
        """Return a row by the names of fields."""
        return {name: row[column] for name, column in self.columns.items()}

    def rows(self, database: Database) -> Iterator[Row]:
        return map(self.entry, database.rows(self.table, tuple(self.columns.values())))


@dataclass
class _Read:
    """What the database has, apart from its people."""

    models: dict[str, _Model]
    clients: list[Row] = field(default_factory=list)
    algorithm: str = ""
    roles: set[str] = field(default_factory=set)
    providers: set[str] = field(default_factory=set)
    hash_methods: set[str] = field(default_factory=set)
    people: int = 0
    others: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Here:
    """What this server and the operator say about factors.

    `providers`: by ID there, the ID and the issuer of the provider here.
    """

    has_same_host: bool = False
    auth_secrets: Secrets = field(default_factory=lambda: Secrets(()))
    providers: Mapping[str, tuple[str, str]] = field(default_factory=dict)


def system(
    source: Source, answers: Answers, advance: Advance, here: Here, most_methods: int
) -> System:
    """Read the database. Raises `FileProblem`."""
    with databases.opened(source) as database:
        stored = _Read(_models(source, database))
        _read(database, stored, most_methods)
    databases.has_been_read(source, advance)
    if unknown := sorted(here.providers.keys() - stored.providers):
        raise FileProblem(f"{source}: nobody has an account of the provider {unknown[0][:60]}")
    context = Context(here.auth_secrets, answers, stored.algorithm)
    drafts = list(better_auth_clients.drafts(stored.clients, context))
    has_subjects = any((draft.fields or {}).get("subject_attribute") for draft in drafts)
    return System(
        kind=KIND,
        name=KIND,
        title=f"better-auth: {len(drafts):,} clients, {stored.people:,} people",
        drafts=drafts,
        client_ids={draft.client_id for draft in drafts},
        groups=sorted(stored.roles),
        people=lambda counts: _people(source, stored, here, has_subjects, counts),
        hash_methods=stored.hash_methods,
        definitions=[
            {"name": SUBJECTS, "title": "Subject of better-auth", "type": attributes.STRING,
             "writers": [attributes.Party.ADMINISTRATOR]}
        ] if has_subjects else [],
        findings=list(_findings(stored)),
    )  # fmt: skip


def _plain(name: str) -> str:
    return name.replace("_", "").lower()


def _named(names: Collection[str], name: str, *others: str) -> str:
    """Return the name that one has in a database, exactly if it is there; "" if it is not."""
    if name in names:
        return name
    plain = [_plain(name), *others]
    fitting = sorted((plain.index(_plain(n)), n) for n in names if _plain(n) in plain)
    return fitting[0][1] if fitting else ""


def _models(source: Source, database: Database) -> dict[str, _Model]:
    """Return the models that the database has. Raises `FileProblem` if it is another server's."""
    models: dict[str, _Model] = {}
    for name, fields in _FIELDS.items():
        if table := _named(database.columns, name, f"{_plain(name)}s"):
            columns = {each: _named(database.columns[table], each) for each in fields}
            models[name] = _Model(table, {each: c for each, c in columns.items() if c})
    for name, keys in {
        "user": ("id", "email", "emailVerified"), "account": ("userId", "providerId"),
    }.items():  # fmt: skip
        if name not in models:
            raise FileProblem(f"{source} is no database of better-auth: it has no table {name}")
        if lacking := [key for key in keys if key not in models[name].columns]:
            raise FileProblem(
                f"{source} is no database of better-auth: its table {models[name].table} has no "
                f"column {lacking[0]}"
            )
    return models


def _read(database: Database, stored: _Read, most_methods: int) -> None:
    models = stored.models
    for entry in models["user"].rows(database):
        stored.people += 1
        stored.roles |= {*_roles(entry)}
        if len(stored.roles) > MOST_GROUPS:
            raise FileProblem(f"{database.origin} has more than {MOST_GROUPS} roles")
    for entry in models["account"].rows(database):
        provider = text(entry.get("providerId"))
        if provider == _PASSWORD and len(stored.hash_methods) < most_methods:
            method = foreign_hashes.method_of(_with_password(entry).password_hash)
            stored.hash_methods |= {method} if method else set()
        elif len(stored.providers) < MOST_PROVIDERS:
            stored.providers.add(provider)
    stored.clients = _few(database, models.get("oauthClient"))
    stored.clients += map(
        better_auth_clients.entry_of_application, _few(database, models.get("oauthApplication"))
    )
    stored.algorithm = _algorithm(database, models.get("jwks"))
    for name in _OTHERS:
        table = _named(database.columns, name, f"{_plain(name)}s")
        if table and next(database.rows(table, ("id",)), None):
            stored.others.append(name)


def _few(database: Database, model: _Model | None) -> list[Row]:
    if model is None:
        return []
    columns = tuple(model.columns.values())
    rows = database.few(model.table, columns, MOST_CLIENTS, "clients")
    return [model.entry(row) for row in rows]


def _algorithm(database: Database, model: _Model | None) -> str:
    """Return the algorithm of ID tokens; "" if no keys sign them."""
    if model is None:
        return ""
    newest = ("", "EdDSA")
    for entry in model.rows(database):
        newest = max(newest, (str(entry.get("createdAt")), text(entry.get("alg")) or "EdDSA"))
    return newest[1]


def _roles(entry: Row) -> list[str]:
    names = dict.fromkeys(exact(entry.get("role")).split(","))
    return [name for name in names if name.strip() and name != _USUAL_ROLE]


def _with_password(entry: Row) -> Person:
    person = Person("")
    person.take_password(lambda: foreign_hashes.from_better_auth(text(entry.get("password"))))
    return person


def _people(
    source: Source, stored: _Read, here: Here, has_subjects: bool, counts: Counter[str]
) -> Iterator[Person]:
    models = stored.models
    others = {name: models[name].reference("userId") for name in _OF_PERSON if name in models}
    now = clock.now().isoformat()
    with closing(Scratch()) as scratch, databases.opened(source) as database:
        users = models["user"].reference("id")
        for number, (row, children) in enumerate(foreign_tables.joined(database, users, others), 1):
            entry = models["user"].entry(row)
            rows = {name: list(map(models[name].entry, children[name])) for name in children}
            person = _person(entry, number, has_subjects)
            _take_ban(person, entry, now, counts)
            _take_accounts(person, rows["account"], here)
            _take_app(person, entry, rows.get("twoFactor", ()), here)
            _take_passkeys(person, rows.get("passkey", ()), here)
            _take_consents(person, rows.get("oauthConsent", ()))
            if person.refused is None:
                person.refused = reading.finished(person, KIND, scratch)
            person.email = person.email[:SHOWN] if person.refused else person.email
            yield person


def _person(entry: Row, number: int, has_subjects: bool) -> Person:
    user_id = foreign_tables.key_of(entry["id"])
    username = text(entry.get("username"))
    person = Person(f"user {number}, {(username or user_id)[:SHOWN]}", source_id=user_id)
    person.email_verified = flag(entry.get("emailVerified"))
    name = text(entry.get("name"))
    first, _, last = name.rpartition(" ")
    # As applications saw it there: the last word is the family name.
    person.take_claims({
        "given_name": first if first else None, "family_name": last if first else None,
        "picture": entry.get("image"), "preferred_username": username,
        "locale": entry.get("locale"), "phone_number": entry.get("phoneNumber"),
    })  # fmt: skip
    if person.claims.get("phone_number"):
        person.claims["phone_number_verified"] = flag(entry.get("phoneNumberVerified"))
    person.take_names(name, email=entry.get("email"), username=username)
    person.groups = _roles(entry)
    if has_subjects:
        person.attributes[SUBJECTS] = user_id
        person.subjects = {SUBJECTS}
    if flag(entry.get("isAnonymous")):
        person.refused = ANONYMOUS
    return person


def _take_ban(person: Person, entry: Row, now: str, counts: Counter[str]) -> None:
    """Disable whom better-auth bans. It lifts a ban at the next sign-in after its end."""
    ends = text(entry.get("banExpires")).replace(" ", "T", 1)
    has_ended = bool(ends) and ends[:19] < now[:19]
    person.disabled = flag(entry.get("banned")) and not has_ended
    counts[UNTIL] += person.disabled and bool(ends) and person.refused is None


def _take_accounts(person: Person, rows: Sequence[Row], here: Here) -> None:
    for row in rows:
        provider = text(row.get("providerId"))
        if provider != _PASSWORD:
            problem = foreign_factors.take_identity(
                person.factors, here.providers.get(provider), text(row.get("accountId"))
            )
            person.lost += [problem] if problem else []
        elif not (person.password_hash or person.password_problem):
            with_password = _with_password(row)
            person.password_hash = with_password.password_hash
            person.password_problem = with_password.password_problem


def _take_app(person: Person, entry: Row, rows: Sequence[Row], here: Here) -> None:
    """Take an authenticator app and the backup codes, if the second factor is switched on."""
    if not flag(entry.get("twoFactorEnabled")):
        return
    verified = [row for row in rows if row.get("verified") is None or flag(row["verified"])]
    if not verified:
        person.lost.append(SENT_CODES)
    for row in verified:
        if person.factors.totp:
            person.lost.append(MORE_APPS)
            continue
        secret = here.auth_secrets.decrypted(text(row.get("secret")))
        if secret is None:
            person.lost.append(LOCKED_APPS)
            continue
        is_base32 = secret.startswith(_BASE32)
        raw = foreign_factors.from_base32(secret.removeprefix(_BASE32)) if is_base32 else (
            secret.encode()
        )  # fmt: skip
        person.factors.totp = foreign_factors.totp_secret(raw)
        if not person.factors.totp:
            person.lost.append(OTHER_APPS)
            continue
        _take_codes(person, text(row.get("backupCodes")), here)


def _take_codes(person: Person, stored: str, here: Here) -> None:
    plain = stored if stored.startswith("[") else here.auth_secrets.decrypted(stored)
    if plain is None:
        person.lost += [LOCKED_CODES] if stored else []
        return
    for code in texts(json_value(plain))[:_MOST_CODES]:
        normal = "".join(c for c in code.lower() if c.isalnum())
        if len(normal) in _CODE:
            person.factors.recovery_codes.append(secrets.digest(normal))


def _take_passkeys(person: Person, rows: Sequence[Row], here: Here) -> None:
    for row in rows:
        if not here.has_same_host:
            person.lost.append(OTHER_HOST)
            continue
        passkey = foreign_factors.passkey(
            foreign_factors.from_base64(row.get("credentialID")),
            foreign_factors.from_base64(row.get("publicKey")),
            count=row.get("counter", 0), transports=text(row.get("transports")).split(","),
            label=text(row.get("name")), is_handle_known=False,
        )  # fmt: skip
        if passkey is None or len(person.factors.passkeys) >= MOST_PASSKEYS:
            person.lost.append(BROKEN_KEYS)
        else:
            person.factors.passkeys.append(passkey)


def _take_consents(person: Person, rows: Sequence[Row]) -> None:
    for row in rows:
        client_id, scopes = text(row.get("clientId")), row.get("scopes")
        is_given = row.get("consentGiven") is None or flag(row["consentGiven"])
        if is_given and client_id.isprintable():
            person.factors.consents[client_id] = (
                better_auth_clients.listed(scopes) or text(scopes).split()
            )


def _findings(stored: _Read) -> Iterator[Finding]:
    for role in sorted(stored.roles):
        yield Finding(Fate.CHANGED, "role", role[:200], "", f"it is the group {role[:200]} here")
    for name in stored.others:
        what, remedy = _OTHERS[name]
        yield Finding(Fate.NOT_TAKEN, "server", what, "", "a migration does not take them", remedy)
