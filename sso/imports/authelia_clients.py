"""Clients of Authelia's configuration, as the fields of clients here.

Authelia decides by policies who may use a client, and by which factors. Here, a client has groups,
and may require a second factor. What cannot be said so leaves the client disabled: nobody gets in
who would not have got in there.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from joserfc.errors import JoseError
from joserfc.jwk import ECKey, RSAKey

from sso.config import client_urls
from sso.config.auth_methods import ANY_AUTH_METHOD, AUTH_METHODS, NO_AUTH_METHOD, PRIVATE_KEY_JWT
from sso.config.client_fields import AUTHORIZATION_CODE, CLIENT_CREDENTIALS, REFRESH_TOKEN
from sso.imports.drafts import BAD_CLIENT_ID, CLIENT_ID, NEW_CLIENT_ID, REDIRECT, Answers, Draft
from sso.imports.findings import Fate
from sso.imports.person import mapping, text
from sso.imports.yaml_files import is_on, listed, word
from sso.process.program import COMMAND

ONE_FACTOR, TWO_FACTOR, DENY = "one_factor", "two_factor", "deny"
_PLAIN = "$plaintext$"
_SCOPES = ("openid", "profile", "email", "address", "phone", "groups", "offline_access")
_DEFAULT_SCOPES = ["openid", "groups", "profile", "email"]
_GRANTS = (AUTHORIZATION_CODE, CLIENT_CREDENTIALS, REFRESH_TOKEN)
_SIGNED: Mapping[str, str] = {
    "userinfo_signed_response_alg": "userinfo is JSON here",
    "userinfo_signing_algorithm": "userinfo is JSON here",
    "introspection_signed_response_alg": "introspection is JSON here",
    "authorization_signed_response_alg": "this server has no JARM",
}  # fmt: skip


def drafts(oidc: Mapping[str, Any], answers: Answers) -> Iterator[Draft]:
    """Yield the clients of `identity_providers.oidc`."""
    for entry in map(mapping, listed(oidc.get("clients"))):
        if client_id := client_id_of(entry):
            yield _Conversion(oidc, answers, entry, client_id).draft()


def client_id_of(entry: Mapping[str, Any]) -> str:
    """Return the ID of a client. Before version 4.38, it had another name."""
    return word(entry.get("client_id")) or word(entry.get("id"))


class _Conversion:
    """One client on its way here."""

    def __init__(
        self, oidc: Mapping[str, Any], answers: Answers, entry: Mapping[str, Any], client_id: str
    ) -> None:
        self._oidc, self._answers, self._entry, self._id = oidc, answers, entry, client_id
        self._is_public = is_on(entry.get("public"))
        self._out = Draft(client_id, client_id[:200])

    def draft(self) -> Draft:
        if not CLIENT_ID.fullmatch(self._id):
            self._out.refuse(BAD_CLIENT_ID, NEW_CLIENT_ID)
            return self._out
        for step in (
            self._authentication, self._grants, self._redirects, self._scopes, self._tokens,
            self._consent, self._policy,
        ):  # fmt: skip
            step()
            if self._out.fields is None:
                break
        return self._out

    def _word(self, *names: str) -> str:
        return next(filter(None, (word(self._entry.get(name)) for name in names)), "")

    def _authentication(self) -> None:
        method = self._word("token_endpoint_auth_method")
        if self._is_public:
            self._out.set("token_endpoint_auth_method", NO_AUTH_METHOD)
        elif method == PRIVATE_KEY_JWT:
            self._out.set("token_endpoint_auth_method", PRIVATE_KEY_JWT)
            self._keys()
        else:
            known_method = method if method in AUTH_METHODS else ANY_AUTH_METHOD
            self._out.set("token_endpoint_auth_method", known_method)
            if method == "client_secret_jwt":
                self._out.note(
                    Fate.CHANGED, "authentication",
                    "this server does not store secrets, so it cannot check client_secret_jwt",
                    "let the application send its secret (client_secret_basic or _post)",
                )  # fmt: skip
            self._secret()
        if self._out.fields is not None:
            self._pkce()

    def _secret(self) -> None:
        secret = self._word("client_secret", "secret")
        if "{{" in secret:
            self._out.take_secret("", self._answers, "it is a template in the configuration")
        elif secret.startswith(_PLAIN) or (secret and not secret.startswith("$")):
            self._out.take_secret(secret.removeprefix(_PLAIN), self._answers, "")
        else:
            self._out.take_secret_hash(secret, self._answers)

    def _pkce(self) -> None:
        everywhere = word(self._oidc.get("enforce_pkce")) == "always"
        method = self._word("pkce_challenge_method")
        asks = is_on(self._entry.get("require_pkce")) or everywhere or method == "S256"
        self._out.set("require_pkce", self._is_public or asks)
        if method == "plain":
            self._out.note(Fate.NOT_TAKEN, "PKCE plain", "only S256 is accepted here")

    def _keys(self) -> None:
        url, keys = self._word("jwks_uri"), [mapping(k) for k in listed(self._entry.get("jwks"))]
        if url:
            if error := client_urls.jwks_uri_error(url):
                self._out.refuse(f"the URL of its keys, {url[:200]}, is refused: {error}")
                return
            self._out.set("jwks_uri", url)
        else:
            try:
                self._out.set("jwks", {"keys": [_public_jwk(key) for key in keys]})
            except (ValueError, JoseError):
                keys = []
            if not keys:
                self._out.refuse(
                    "its public keys are missing, or cannot be read",
                    f"{COMMAND} client create … --auth-method {PRIVATE_KEY_JWT} --jwks FILE",
                )
                return
        self._out.take_assertion_algorithm(self._word("token_endpoint_auth_signing_alg"))

    def _grants(self) -> None:
        grants = [word(name) for name in listed(self._entry.get("grant_types"))]
        grants = grants or [AUTHORIZATION_CODE]
        kinds = [word(kind) for kind in listed(self._entry.get("response_types"))]
        if "implicit" in grants or set(kinds) - {"code"}:
            self._out.note(
                Fate.NOT_TAKEN, "implicit and hybrid flow", "they put tokens into URLs",
                "let the application use the authorization code with PKCE",
            )  # fmt: skip
        for name in sorted(set(grants) - {*_GRANTS, "implicit"}):
            self._out.note(
                Fate.NOT_TAKEN, f"grant {name[:60]}", "it is not switched on here",
                f"see: {COMMAND} client update --help",
            )  # fmt: skip
        taken = [name for name in _GRANTS if name in grants]
        if CLIENT_CREDENTIALS in taken and self._is_public:
            taken.remove(CLIENT_CREDENTIALS)
        if not {AUTHORIZATION_CODE, CLIENT_CREDENTIALS} & {*taken}:
            self._out.refuse("no flow is enabled that this server has")
            return
        self._out.set("grant_types", taken)

    def _redirects(self) -> None:
        assert self._out.fields is not None
        self._out.set("client_name", self._word("client_name", "description")[:200] or self._id)
        uris: list[str] = []
        if AUTHORIZATION_CODE in self._out.fields["grant_types"]:
            answers = list(self._answers.redirect_uris.get(self._id, ()))
            uris_there = [word(uri) for uri in listed(self._entry.get("redirect_uris"))]
            uris = self._out.exact(
                REDIRECT, [*uris_there, *answers], is_public=self._is_public,
                is_answered=bool(answers),
            )  # fmt: skip
            if not uris:
                self._out.refuse_redirects(uris_there)
                return
        self._out.set("redirect_uris", uris)

    def _scopes(self) -> None:
        names = [word(name) for name in listed(self._entry.get("scopes"))] or _DEFAULT_SCOPES
        self._out.set("scope", " ".join(name for name in _SCOPES if name in (*names, "openid")))
        for name in sorted(set(names) - set(_SCOPES)):
            self._out.note(
                Fate.NOT_TAKEN, f"scope {name[:60]}",
                "this server has no scopes of your own; requests for it are ignored",
                f"send its claims always: {COMMAND} client update {self._id} --add-claim …",
            )  # fmt: skip
        if self._word("claims_policy"):
            self._out.note(
                Fate.NOT_TAKEN, "claims policy",
                "ID tokens have the claims of the scopes; those of your own are not sent",
                f"{COMMAND} client update {self._id} --add-claim …: docs/how-to/own-claims.md",
            )  # fmt: skip
        if listed(self._entry.get("audience")):
            self._out.note(
                Fate.NOT_TAKEN, "audience", "access tokens for others are those of an API here",
                "register it: docs/how-to/apis.md",
            )  # fmt: skip

    def _tokens(self) -> None:
        if self._answers.issuer:
            self._out.set("issuer", self._answers.issuer)
        self._out.set("id_token_claims", "all")  # as Authelia's ID tokens before version 4.39
        algorithm = self._word("id_token_signed_response_alg", "id_token_signing_alg") or "RS256"
        self._out.take_algorithm(algorithm)
        name = "require_pushed_authorization_requests"
        pushes_all = is_on(mapping(self._oidc.get("pushed_authorizations")).get("enforce"))
        if is_on(self._entry.get(name)) or is_on(self._oidc.get(name)) or pushes_all:
            self._out.set(name, True)
        for option, why in _SIGNED.items():
            if self._word(option) not in ("", "none"):
                self._out.note(Fate.NOT_TAKEN, option.replace("_", " "), why)
        if self._word("request_object_signing_alg") not in ("", "none"):
            self._out.note(
                Fate.NOT_TAKEN, "request objects", "this server takes pushed requests instead"
            )
        if self._word("sector_identifier_uri", "sector_identifier"):
            self._out.note(
                Fate.NOT_TAKEN, "pairwise subjects", "each person has one subject for all",
                "its people appear as new ones there, unless it knows them by email address",
            )  # fmt: skip
        if self._word("lifespan"):
            self._out.note(
                Fate.NOT_TAKEN, "lifetimes of its own", "there are none per client",
                "lifetimes hold for the whole server: docs/reference/settings.md",
            )  # fmt: skip

    def _consent(self) -> None:
        mode = self._word("consent_mode") or "auto"
        self._out.set("first_party", mode == "implicit")
        if mode != "implicit":
            self._out.note(
                Fate.CHANGED, "consent", "people consent once, until they end it",
                f"to ask nobody: {COMMAND} client update {self._id} --first-party",
            )  # fmt: skip

    def _policy(self) -> None:
        name = self._word("authorization_policy") or TWO_FACTOR
        self._out.set("groups", [])
        self._out.set("disabled", name == DENY)
        self._out.set("require_mfa", name == TWO_FACTOR)
        policies = mapping(self._oidc.get("authorization_policies"))
        if name not in (ONE_FACTOR, TWO_FACTOR, DENY):
            self._own_policy(name, mapping(policies.get(name)))

    def _own_policy(self, name: str, policy: Mapping[str, Any]) -> None:
        """Take the groups that a policy lets in, if it lets nobody else in."""
        rules = [mapping(rule) for rule in listed(policy.get("rules"))]
        default = word(policy.get("default_policy")) or TWO_FACTOR
        levels = [default, *(word(rule.get("policy")) for rule in rules)]
        self._out.set("require_mfa", TWO_FACTOR in levels)
        if {ONE_FACTOR, TWO_FACTOR} <= {*levels}:
            self._out.note(
                Fate.CHANGED, f"policy {name[:60]}", "everybody needs a second factor here",
                f"to ask nobody: {COMMAND} client update {self._id} --no-require-mfa",
            )  # fmt: skip
        if not policy or set(levels) - {ONE_FACTOR, TWO_FACTOR, DENY}:
            self._nobody(name, "it is not in the configuration, or names another level")
        elif default != DENY:
            if DENY in levels:
                self._nobody(name, "it denies some people access, and this server only lets in")
        elif DENY in levels[1:]:
            self._nobody(name, "it denies some of those people access whom another rule lets in")
        else:
            self._groups(name, rules)

    def _groups(self, name: str, rules: list[dict[str, Any]]) -> None:
        groups, others = [], 0
        for rule in rules:
            is_whole = not listed(rule.get("networks"))
            for subject in listed(rule.get("subject")):
                group = _group_of(subject)
                if group and is_whole:
                    groups.append(group)
                else:
                    others += 1
        if not groups:
            self._nobody(name, "it lets in nobody by a group alone")
            return
        self._out.set("groups", list(dict.fromkeys(groups)))
        if others:
            self._out.note(
                Fate.NOT_TAKEN, f"policy {name[:60]}",
                f"{others} subjects that are no single group: they are not let in",
                f"put the people into a group: {COMMAND} client update {self._id} --add-group …",
            )  # fmt: skip

    def _nobody(self, name: str, why: str) -> None:
        self._out.set("disabled", True)
        self._out.note(
            Fate.QUESTION, f"policy {name[:60]}", f"{why}; so the client is disabled",
            f"say who may use it: {COMMAND} client update {self._id} --add-group …, then: "
            f"{COMMAND} client enable {self._id}",
        )  # fmt: skip


def _group_of(subject: Any) -> str:
    """Return the group that a subject of a rule is; "" if it is something else.

    Subjects in a list of their own have to be true together.
    """
    if isinstance(subject, list):
        subject = subject[0] if len(subject) == 1 else ""
    kind, _, name = word(subject).partition(":")
    return name.strip() if kind == "group" else ""


def _public_jwk(entry: dict[str, Any]) -> dict[str, Any]:
    """Return the key of an entry. Raises `ValueError` and `JoseError`."""
    pem = text(entry.get("key"))
    if "PRIVATE" in pem:
        raise ValueError("a private key")
    named = {"kid": key_id} if (key_id := word(entry.get("key_id"))) else {}
    try:
        return dict(RSAKey.import_key(pem).as_dict(private=False)) | named
    except (ValueError, JoseError, TypeError):
        return dict(ECKey.import_key(pem).as_dict(private=False)) | named
