"""Clients of Auth0, as the fields of clients here.

Values come from JSON or YAML, whose scalars are texts. Callback URLs with wildcards are never
taken: the operator answers with exact ones.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from sso.config import client_urls
from sso.config.auth_methods import ANY_AUTH_METHOD, NO_AUTH_METHOD, PRIVATE_KEY_JWT
from sso.config.client_fields import (
    AUTHORIZATION_CODE,
    CLIENT_CREDENTIALS,
    DEVICE_CODE,
    JWT_BEARER,
    REFRESH_TOKEN,
    TOKEN_EXCHANGE,
)
from sso.config.urls import home_url_error
from sso.imports.drafts import (
    BAD_CLIENT_ID,
    CLIENT_ID,
    NEW_CLIENT_ID,
    Answers,
    Draft,
)
from sso.imports.findings import Fate
from sso.imports.formats import AUTH0_SUBJECTS
from sso.imports.person import mapping, texts
from sso.imports.yaml_files import is_on, word
from sso.process.program import COMMAND

_PUBLIC, _SERVICE = ("spa", "native"), "non_interactive"
_TYPES = ("", *_PUBLIC, "regular_web", _SERVICE)
_SCOPES = "openid profile email address phone"
_LIFETIME = "36000"  # seconds of an ID token, unless somebody changed it
_MOST_URIS = 1_000  # of one kind; more than a client here may have
_CODES = ("the sign-in pages ask for it, not applications", "let the application use the pages")
_OWN = "http://auth0.com/oauth/grant-type/"
# Grants that are not taken, and why, and what to do.
_OTHER_GRANTS: Mapping[str, tuple[str, str]] = {
    "implicit": (
        "it puts tokens into URLs",
        "let the application use the authorization code with PKCE",
    ),
    "password": (
        "the application would see passwords",
        "let it use the authorization code, the device code or client credentials",
    ),
    f"{_OWN}password-realm": (
        "the application would see passwords",
        "let it use the authorization code, the device code or client credentials",
    ),
    f"{_OWN}passwordless/otp": (
        "codes by mail are part of the sign-in pages here",
        "switch them on, SSO_MAIL_CODES=on, and let the application use the authorization code",
    ),
    f"{_OWN}mfa-oob": _CODES,
    f"{_OWN}mfa-otp": _CODES,
    f"{_OWN}mfa-recovery-code": _CODES,
    TOKEN_EXCHANGE: ("it needs more to be said here", "see: docs/how-to/exchange-tokens.md"),
    JWT_BEARER: ("it needs more to be said here", "see: docs/how-to/identity-assertions.md"),
    "urn:openid:params:grant-type:ciba": ("this server has no CIBA", ""),
}


def drafts(entries: Sequence[Mapping[str, Any]], answers: Answers) -> Iterator[Draft]:
    """Yield the clients."""
    for entry in entries:
        yield _Conversion(entry, answers).draft()


class _Conversion:
    """One client on its way here."""

    def __init__(self, entry: Mapping[str, Any], answers: Answers) -> None:
        self._entry, self._answers = entry, answers
        self._id = word(entry.get("client_id"))
        self._type = word(entry.get("app_type"))
        method = word(entry.get("token_endpoint_auth_method"))
        self._is_public = method == NO_AUTH_METHOD or (not method and self._type in _PUBLIC)
        self._grants: list[str] = []
        self._out = Draft(self._id, (self._id or word(entry.get("name")) or "?")[:200])

    def draft(self) -> Draft:
        methods = [*mapping(self._entry.get("client_authentication_methods"))]
        if not self._id:
            self._out.refuse(
                "the file does not have its client ID", "export once more, with: --export_ids=true"
            )
        elif not CLIENT_ID.fullmatch(self._id):
            self._out.refuse(BAD_CLIENT_ID, NEW_CLIENT_ID)
        elif self._type not in _TYPES:
            self._out.refuse(
                f"its type is {self._type[:40]}, which is no OpenID Connect application",
                "for SAML: docs/how-to/saml.md; for APIs: docs/how-to/apis.md",
            )
        elif methods:
            self._out.refuse(
                f"it authenticates by {methods[0][:40]}, and the file does not have its keys",
                f"{COMMAND} client create … --auth-method {PRIVATE_KEY_JWT} --jwks FILE",
            )
        elif self._take_grants() and self._take_redirects():
            for step in (
                self._authentication, self._people, self._tokens, self._urls, self._features,
            ):  # fmt: skip
                step()
        return self._out

    def _flag(self, name: str, default: bool = False) -> bool:
        return is_on(self._entry.get(name, default))

    def _take_grants(self) -> bool:
        named = list(dict.fromkeys(texts(self._entry.get("grant_types"))))
        if not isinstance(self._entry.get("grant_types"), list):
            is_service = self._type == _SERVICE
            named = [CLIENT_CREDENTIALS] if is_service else [AUTHORIZATION_CODE, REFRESH_TOKEN]
        grants = [name for name in (AUTHORIZATION_CODE, DEVICE_CODE) if name in named]
        if CLIENT_CREDENTIALS in named and not self._is_public:
            grants.append(CLIENT_CREDENTIALS)
        has_uris = texts(self._entry.get("callbacks")) or self._id in self._answers.redirect_uris
        if AUTHORIZATION_CODE in grants and len(grants) > 1 and not has_uris:
            grants.remove(AUTHORIZATION_CODE)
            self._out.note(
                Fate.NOT_TAKEN, f"grant {AUTHORIZATION_CODE}", "it has no callback URL",
                f"if it signs people in: --redirect-uri {self._id}=URI",
            )  # fmt: skip
        if REFRESH_TOKEN in named and {AUTHORIZATION_CODE, DEVICE_CODE} & {*grants}:
            grants.append(REFRESH_TOKEN)
        others = [name for name in named if name in _OTHER_GRANTS]
        if not grants:
            listed = ", ".join(named)[:300] or "none at all"
            remedy = _OTHER_GRANTS[others[0]][1] if others else ""
            self._out.refuse(f"it has no grant that this server takes: {listed}", remedy)
            return False
        for name in others:
            self._out.note(Fate.NOT_TAKEN, f"grant {name.removeprefix(_OWN)}", *_OTHER_GRANTS[name])
        kept = {AUTHORIZATION_CODE, DEVICE_CODE, CLIENT_CREDENTIALS, REFRESH_TOKEN}
        unknown = [name for name in named if name not in kept and name not in _OTHER_GRANTS]
        for name in unknown[:20]:
            self._out.note(Fate.NOT_TAKEN, f"grant {name[:80]}", "this server does not have it")
        if CLIENT_CREDENTIALS in named and self._is_public:
            self._out.note(
                Fate.NOT_TAKEN, f"grant {CLIENT_CREDENTIALS}", "a public client has no secret",
                "register the service as a client of its own",
            )  # fmt: skip
        self._grants = grants
        self._out.set("grant_types", grants)
        return True

    def _take_redirects(self) -> bool:
        after = self._listed("allowed_logout_urls")
        if AUTHORIZATION_CODE not in self._grants:
            self._out.set("redirect_uris", [])
            self._out.take_post_logout(after, is_public=self._is_public)
        elif not self._out.take_redirects(
            self._listed("callbacks"), after, self._answers, is_public=self._is_public
        ):
            return False
        assert self._out.fields is not None
        uris = self._out.fields["redirect_uris"]
        origins = [*self._listed("web_origins"), *self._listed("allowed_origins")]
        self._out.note_origins(dict.fromkeys(origins), uris)
        return True

    def _listed(self, name: str) -> list[str]:
        return texts(self._entry.get(name))[:_MOST_URIS]

    def _authentication(self) -> None:
        self._out.set("client_name", word(self._entry.get("name"))[:200] or self._id)
        self._out.set("require_pkce", self._is_public)
        method = NO_AUTH_METHOD if self._is_public else ANY_AUTH_METHOD
        self._out.set("token_endpoint_auth_method", method)
        if self._is_public:
            if AUTHORIZATION_CODE in self._grants:
                self._out.note(
                    Fate.CHANGED, "PKCE", "public clients have to use PKCE with S256 here",
                    "check that the application sends code_challenge",
                )  # fmt: skip
            return
        secret = word(self._entry.get("client_secret"))
        missing = "" if secret else "the file does not have it: the token needs read:client_keys"
        if secret.startswith(("##", "@@")):
            missing = "it is a placeholder of the Deploy CLI"
        self._out.take_secret(secret, self._answers, missing)

    def _people(self) -> None:
        """Take what concerns people; a service has none."""
        if self._grants == [CLIENT_CREDENTIALS]:
            self._out.ask_apis()
            return
        self._out.set("scope", _SCOPES + " offline_access" * (REFRESH_TOKEN in self._grants))
        self._out.set("id_token_claims", "all")  # those of its scopes, as in Auth0
        self._out.set("subject_attribute", AUTH0_SUBJECTS)
        is_first_party = self._flag("is_first_party", True)
        self._out.set("first_party", is_first_party)
        if not is_first_party:
            self._out.note(
                Fate.CHANGED, "consent", "people consent once more",
                f"to ask nobody: {COMMAND} client update {self._id} --first-party",
            )  # fmt: skip
        if word(self._entry.get("organization_usage")) in ("allow", "require"):
            self._out.note(
                Fate.NOT_TAKEN, "organizations", "everybody may use the client here",
                f"to let in groups alone: {COMMAND} client update {self._id} --add-group NAME",
            )  # fmt: skip

    def _tokens(self) -> None:
        settings = mapping(self._entry.get("jwt_configuration"))
        algorithm = word(settings.get("alg")) or "RS256"
        if algorithm.startswith("HS"):
            self._out.set("id_token_signed_response_alg", "RS256")
            self._out.note(
                Fate.CHANGED, "algorithm of ID tokens",
                f"{algorithm[:20]} becomes RS256: this server does not store the client's secret, "
                "so it cannot sign with it",
                "let the application verify ID tokens by the key set",
            )  # fmt: skip
        else:
            self._out.take_algorithm(algorithm)
        of_refresh = mapping(self._entry.get("refresh_token"))
        if REFRESH_TOKEN in self._grants and word(of_refresh.get("rotation_type")) == (
            "non-rotating"
        ):
            self._out.note(
                Fate.CHANGED, "refresh tokens", "each works once here, and gives the next one",
                "check that the application stores the new one each time",
            )  # fmt: skip
        seconds = str(settings.get("lifetime_in_seconds", _LIFETIME))
        if seconds != _LIFETIME or word(of_refresh.get("expiration_type")) == "expiring":
            self._out.note(
                Fate.NOT_TAKEN, "lifetimes of its own", "there are none per client",
                "lifetimes hold for the whole server: docs/reference/settings.md",
            )  # fmt: skip
        if self._flag("require_pushed_authorization_requests"):
            self._out.set("require_pushed_authorization_requests", True)
        if self._flag("require_proof_of_possession"):
            self._out.set("dpop_bound_access_tokens", True)
            self._out.note(
                Fate.CHANGED, "proof of possession", "it is DPoP here, not a TLS certificate"
            )

    def _urls(self) -> None:
        home = word(self._entry.get("initiate_login_uri"))
        if home and (error := home_url_error(home)):
            self._out.note(Fate.NOT_TAKEN, "login URI", f"{home[:200]}: {error}")
        elif home:
            self._out.set("home_url", home)
            self._out.note(
                Fate.CHANGED, "login URI", "people's account pages link it, without parameters"
            )
        logout = mapping(self._entry.get("oidc_logout")) or mapping(
            self._entry.get("oidc_backchannel_logout")
        )
        for number, url in enumerate(texts(logout.get("backchannel_logout_urls"))[:20]):
            if number or (error := client_urls.backchannel_error(url)):
                why = "there is one for each client" if number else error
                self._out.note(Fate.NOT_TAKEN, "back-channel logout URI", f"{url[:200]}: {why}")
            else:
                self._out.set("backchannel_logout_uri", url)
        if word(self._entry.get("logo_uri")):
            self._out.note(
                Fate.NOT_TAKEN, "logo", "this server does not load it",
                f"{COMMAND} client update {self._id} --logo FILE",
            )  # fmt: skip

    def _features(self) -> None:
        if "oidc_conformant" in self._entry and not self._flag("oidc_conformant"):
            self._out.note(
                Fate.CHANGED, "legacy behaviour", "all clients follow OpenID Connect here",
                "let it send scopes, and read standard claims",
            )  # fmt: skip
        if self._flag("cross_origin_authentication") or self._flag("cross_origin_auth"):
            self._out.note(
                Fate.NOT_TAKEN, "embedded sign-in", "the application would see passwords",
                "let it send people to the sign-in page",
            )  # fmt: skip
        if addons := _names(self._entry.get("addons")):
            self._out.note(
                Fate.NOT_TAKEN, f"add-ons {addons}", "this client speaks OpenID Connect alone",
                "for SAML: docs/how-to/saml.md",
            )  # fmt: skip
        if metadata := _names(self._entry.get("client_metadata")):
            self._out.note(Fate.NOT_TAKEN, f"metadata {metadata}", "clients here have none")


def _names(value: Any) -> str:
    names: Iterable[str] = mapping(value)
    return ", ".join(names)[:100]
