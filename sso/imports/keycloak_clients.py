"""Clients of a Keycloak realm, as the fields of clients here.

Each part that cannot be taken as it is becomes a finding, with what to do about it. Redirect URIs
with wildcards are never taken: the operator answers with exact ones.
"""

import base64
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import urlsplit
from uuid import UUID, uuid5

from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from cryptography.x509 import load_der_x509_certificate
from joserfc.errors import JoseError
from joserfc.jwk import ECKey, RSAKey

from sso.config import client_urls
from sso.config.auth_methods import ANY_AUTH_METHOD, NO_AUTH_METHOD, PRIVATE_KEY_JWT
from sso.config.client_fields import (
    AUTHORIZATION_CODE,
    CLIENT_CREDENTIALS,
    DEVICE_CODE,
    REFRESH_TOKEN,
)
from sso.config.urls import home_url_error
from sso.flow import role_claims
from sso.imports import keycloak_credentials, keycloak_mappers
from sso.imports.drafts import (
    BAD_CLIENT_ID,
    CLIENT_ID,
    NEW_CLIENT_ID,
    POST_LOGOUT,
    REDIRECT,
    Answers,
    Draft,
)
from sso.imports.findings import Fate
from sso.imports.keycloak_mappers import Claims
from sso.imports.keycloak_realm import OWN_CLIENTS, Realm, Roles
from sso.imports.person import mapping, text, texts
from sso.process.program import COMMAND

_NAMESPACE = UUID("7f0c35a4-5d0a-4a0e-9d37-0f2b3c8f6d11")  # of entity IDs: never change it
_SAME_SCOPES = ("profile", "email", "address", "phone", "offline_access")
# Those without claims that this server would not send anyway.
_SILENT_SCOPES = frozenset(
    ("basic", "acr", "roles", "web-origins", "service_account", "role_list", "saml_organization",
     *_SAME_SCOPES)
)  # fmt: skip
_LIFETIMES = (
    "access.token.lifespan", "client.session.idle.timeout", "client.session.max.lifespan",
    "client.offline.session.idle.timeout", "client.offline.session.max.lifespan",
)  # fmt: skip
_LIFETIME_REMEDY = "lifetimes hold for the whole server: docs/reference/settings.md"
# Attributes that say yes to something that this server lacks, and what follows.
_UNSUPPORTED: Mapping[str, tuple[str, str]] = {
    "oidc.ciba.grant.enabled": ("CIBA", "this server has no CIBA"),
    "standard.token.exchange.enabled": (
        "token exchange",
        f"register the API that it acts as, and run: {COMMAND} client update ID --exchange-from",
    ),
    "tls.client.certificate.bound.access.tokens": (
        "tokens bound to a TLS certificate", "this server binds tokens by DPoP",
    ),
    "client.use.lightweight.access.token.enabled": (
        "lightweight access tokens", "access tokens for an API have few claims here anyway",
    ),
}  # fmt: skip
_ENCRYPTED = ("id.token.encrypted.response.alg", "user.info.encrypted.response.alg")


def drafts(realm: Realm, roles: Roles, answers: Answers) -> Iterable[Draft]:
    """Yield each client that is not Keycloak's own."""
    for entry in realm.clients:
        client_id = text(entry.get("clientId"))
        if client_id and client_id not in OWN_CLIENTS:
            yield _Conversion(realm, roles, answers, entry, client_id).draft()


class _Conversion:
    """One client on its way here."""

    def __init__(
        self, realm: Realm, roles: Roles, answers: Answers, entry: dict[str, Any], client_id: str
    ) -> None:
        self._realm, self._roles, self._answers = realm, roles, answers
        self._entry, self._id = entry, client_id
        self._attributes = {
            name: value for name, value in mapping(entry.get("attributes")).items()
            if isinstance(value, str)
        }  # fmt: skip
        self._out = Draft(client_id, client_id[:200])

    def draft(self) -> Draft:
        protocol = text(self._entry.get("protocol")) or "openid-connect"
        if protocol == "saml":
            self._saml()
        elif protocol != "openid-connect":
            self._out.refuse(f"its protocol is {protocol[:40]}")
        elif not CLIENT_ID.fullmatch(self._id):
            self._out.refuse(BAD_CLIENT_ID, NEW_CLIENT_ID)
        elif self._flag("bearerOnly"):
            self._out.refuse(
                "it only checks tokens (bearer-only)",
                f"register it as an API: {COMMAND} api create",
            )
        else:
            self._openid()
        return self._out

    def _flag(self, name: str, default: bool = False) -> bool:
        value = self._entry.get(name, default)
        return value is True

    def _is_on(self, attribute: str) -> bool:
        return self._attributes.get(attribute, "").lower() == "true"

    def _common(self) -> None:
        name = text(self._entry.get("name"))
        self._out.set("client_name", name if name and "${" not in name else self._id[:200])
        self._out.set("disabled", not self._flag("enabled", True))
        home = self._absolute(text(self._entry.get("baseUrl")))
        if home and not home_url_error(home):
            self._out.set("home_url", home)
        elif home:
            self._out.note(Fate.NOT_TAKEN, "home URL", f"{home[:200]}: {home_url_error(home)}")
        for attribute, what in (("logoUri", "logo"), ("policyUri", "privacy policy"),
                                ("tosUri", "terms of service")):  # fmt: skip
            if self._attributes.get(attribute):
                remedy = f"{COMMAND} client update ID --logo FILE" if what == "logo" else ""
                self._out.note(Fate.NOT_TAKEN, what, "this server does not load it", remedy)
        if mapping(self._entry.get("authenticationFlowBindingOverrides")):
            self._out.note(
                Fate.NOT_TAKEN, "its own sign-in flow", "this server has one sign-in for all",
                f"if it asks for a second factor: {COMMAND} client update ID --require-mfa",
            )  # fmt: skip

    def _openid(self) -> None:
        self._out.set("first_party", not self._flag("consentRequired"))
        self._common()
        self._authentication()
        if self._out.fields is None:
            return
        for step in (self._grants, self._redirects):
            step()
            if self._out.fields is None:
                return
        if self._answers.issuer:
            self._out.set("issuer", self._answers.issuer)
        self._tokens()
        self._scopes()
        self._claims()

    def _authentication(self) -> None:
        kind = text(self._entry.get("clientAuthenticatorType")) or "client-secret"
        if self._flag("publicClient"):
            self._out.set("token_endpoint_auth_method", NO_AUTH_METHOD)
            self._out.set("require_pkce", True)
            method = self._attributes.get("pkce.code.challenge.method")
            if self._flag("standardFlowEnabled", True) and method != "S256":
                self._out.note(
                    Fate.CHANGED, "PKCE", "public clients have to use PKCE with S256 here",
                    "check that the application sends code_challenge",
                )  # fmt: skip
        elif kind == "client-jwt":
            self._out.set("token_endpoint_auth_method", PRIVATE_KEY_JWT)
            self._keys()
        elif kind in ("client-secret", "client-secret-jwt"):
            self._out.set("token_endpoint_auth_method", ANY_AUTH_METHOD)
            if kind == "client-secret-jwt":
                self._out.note(
                    Fate.CHANGED, "authentication",
                    "this server does not store secrets, so it cannot check client_secret_jwt",
                    "let the application send its secret (client_secret_basic or _post)",
                )  # fmt: skip
            self._secret()
        else:
            self._out.refuse(
                f"it authenticates by {kind[:40]}, which this server does not have",
                "register it with a secret or a key (private_key_jwt)",
            )
        if self._out.fields is not None and not self._flag("publicClient"):
            method = self._attributes.get("pkce.code.challenge.method", "")
            self._out.set("require_pkce", method == "S256")
            if method == "plain":
                self._out.note(Fate.NOT_TAKEN, "PKCE plain", "only S256 is accepted here")

    def _secret(self) -> None:
        secret, missing = text(self._entry.get("secret")), ""
        if not secret or set(secret) == {"*"}:
            missing = "it is masked or missing in the export"
        elif secret.startswith("${vault."):
            missing = "it is in a vault of Keycloak"
        self._out.take_secret(secret, self._answers, missing)

    def _keys(self) -> None:
        url = self._attributes.get("jwks.url", "")
        if self._is_on("use.jwks.url") and url:
            if error := client_urls.jwks_uri_error(url):
                self._out.refuse(f"the URL of its keys, {url[:200]}, is refused: {error}")
            else:
                self._out.set("jwks_uri", url)
        elif self._is_on("use.jwks.string"):
            keys = keycloak_credentials.json_object(self._attributes.get("jwks.string"))
            self._out.set("jwks", keys)
            if not keys.get("keys"):
                self._out.refuse("its public keys cannot be read")
        elif certificate := self._attributes.get("jwt.credential.certificate"):
            try:
                self._out.set("jwks", {"keys": [_public_jwk(base64.b64decode(certificate))]})
            except (ValueError, JoseError):
                self._out.refuse("the certificate of its key cannot be read")
        else:
            self._out.refuse(
                "the export does not have its public keys",
                f"{COMMAND} client create … --auth-method {PRIVATE_KEY_JWT} --jwks FILE",
            )
        algorithm = self._attributes.get("token.endpoint.auth.signing.alg")
        if self._out.fields is not None:
            self._out.take_assertion_algorithm(algorithm or "")

    def _grants(self) -> None:
        grants = []
        if self._flag("standardFlowEnabled", True):
            grants.append(AUTHORIZATION_CODE)
        if self._is_on("oauth2.device.authorization.grant.enabled"):
            grants.append(DEVICE_CODE)
        if self._flag("serviceAccountsEnabled") and not self._flag("publicClient"):
            grants.append(CLIENT_CREDENTIALS)
        people = {AUTHORIZATION_CODE, DEVICE_CODE} & {*grants}
        if people and self._attributes.get("use.refresh.tokens", "true") != "false":
            grants.append(REFRESH_TOKEN)
        if self._flag("implicitFlowEnabled"):
            self._out.note(
                Fate.NOT_TAKEN, "implicit and hybrid flow", "they put tokens into URLs",
                "let the application use the authorization code with PKCE",
            )  # fmt: skip
        if self._flag("directAccessGrantsEnabled"):
            self._out.note(
                Fate.NOT_TAKEN, "password grant", "the application would see passwords",
                "if it uses the grant: authorization code, device code or client credentials",
            )  # fmt: skip
        if self._flag("authorizationServicesEnabled"):
            self._out.note(
                Fate.NOT_TAKEN,
                "authorization services (UMA)",
                "this server decides who may use an application, not about resources",
            )
        if not grants:
            self._out.refuse("no flow is enabled that this server has")
            return
        self._out.set("grant_types", grants)

    def _redirects(self) -> None:
        assert self._out.fields is not None
        is_public = self._flag("publicClient")
        uris: list[str] = []
        if AUTHORIZATION_CODE in self._out.fields["grant_types"]:
            answers = list(self._answers.redirect_uris.get(self._id, ()))
            listed = texts(self._entry.get("redirectUris"))
            uris = self._exact(REDIRECT, [*listed, *answers], is_public, bool(answers))
            if not uris:
                self._out.refuse_redirects(listed)
                return
        self._out.set("redirect_uris", uris)
        after: list[str] = []
        for uri in self._attributes.get("post.logout.redirect.uris", "").split("##"):
            after += uris if uri == "+" else [uri.strip()] if uri.strip() not in ("", "-") else []
        after = self._exact(POST_LOGOUT, after, is_public, False)
        self._out.set("post_logout_redirect_uris", after)
        origins = [origin for origin in texts(self._entry.get("webOrigins")) if origin != "+"]
        self._out.note_origins(origins, uris)
        self._logout()

    def _exact(
        self, what: str, uris: Iterable[str], is_public: bool, is_answered: bool
    ) -> list[str]:
        return self._out.exact(
            what, uris, is_public=is_public, is_answered=is_answered, absolute=self._absolute
        )

    def _absolute(self, url: str) -> str:
        root = text(self._entry.get("rootUrl"))
        if url.startswith("/") and urlsplit(root).scheme in ("http", "https"):
            return root.rstrip("/") + url
        return url

    def _logout(self) -> None:
        url = self._attributes.get("backchannel.logout.url", "")
        if url and not (error := client_urls.backchannel_error(url)):
            self._out.set("backchannel_logout_uri", url)
        elif url:
            self._out.note(
                Fate.NOT_TAKEN, "back-channel logout URI", f"{url[:200]}: {error}",
            )  # fmt: skip
        if self._attributes.get("frontchannel.logout.url"):
            self._out.note(
                Fate.NOT_TAKEN, "front-channel logout", "browsers block it; this server has none",
                "let the application offer back-channel logout",
            )  # fmt: skip

    def _tokens(self) -> None:
        self._out.set("id_token_claims", "all")  # as Keycloak's default scopes do
        default = text(self._realm.settings.get("defaultSignatureAlgorithm")) or "RS256"
        self._out.take_algorithm(self._attributes.get("id.token.signed.response.alg") or default)
        for attribute, name in (
            ("require.pushed.authorization.requests", "require_pushed_authorization_requests"),
            ("dpop.bound.access.tokens", "dpop_bound_access_tokens"),
        ):
            if self._is_on(attribute):
                self._out.set(name, True)
        if any(self._attributes.get(name) for name in _LIFETIMES):
            self._out.note(Fate.NOT_TAKEN, "lifetimes of its own", "there are none per client",
                           _LIFETIME_REMEDY)  # fmt: skip
        for attribute, (what, remedy) in _UNSUPPORTED.items():
            if self._is_on(attribute):
                self._out.note(Fate.NOT_TAKEN, what, "it is not switched on here", remedy)
        if any(self._attributes.get(name) for name in _ENCRYPTED):
            self._out.note(Fate.NOT_TAKEN, "encrypted tokens", "this server signs, and uses TLS")
        if self._attributes.get("user.info.response.signature.alg", "any") not in ("any", ""):
            self._out.note(Fate.NOT_TAKEN, "signed userinfo", "userinfo is JSON here")
        if self._attributes.get("minimum.acr.value") or self._attributes.get("default.acr.values"):
            self._out.note(
                Fate.NOT_TAKEN,
                "levels of authentication",
                "they have other names here",
                f"for a second factor: {COMMAND} client update {self._id} --require-mfa",
            )

    def _scopes(self) -> None:
        default = texts(self._entry.get("defaultClientScopes"))
        optional = texts(self._entry.get("optionalClientScopes"))
        scopes = ["openid", *(name for name in _SAME_SCOPES if name in (*default, *optional))]
        if "groups" in (*default, *optional):
            scopes.append("groups")
        if "groups" in optional and "groups" not in default:
            self._out.note(
                Fate.CHANGED, "optional scope groups", "its claim has the names of groups here, as "
                "in teams/red, and those that stand for roles",
                f"if it compares others: {COMMAND} client update {self._id} --add-claim "
                "groups=group:NAME,VALUE",
            )  # fmt: skip
        self._out.set("scope", " ".join(scopes))
        for name in optional:
            scope = self._realm.scopes.get(name, {})
            mappers = scope.get("protocolMappers")
            is_other = name not in _SILENT_SCOPES | {"groups", "microprofile-jwt", "organization"}
            if is_other and mappers:
                self._out.note(
                    Fate.NOT_TAKEN, f"optional scope {name[:60]}",
                    "this server has no scopes of your own; requests for it are ignored",
                    f"send its claims always: {COMMAND} client update {self._id} --add-claim …",
                )  # fmt: skip

    def _claims(self) -> None:
        assert self._out.fields is not None
        claims = Claims(self._id, self._realm, self._roles)
        for name in texts(self._entry.get("defaultClientScopes")):
            if name not in _SILENT_SCOPES:
                claims.take_all(self._realm.scopes.get(name, {}).get("protocolMappers"))
        claims.take_all(self._entry.get("protocolMappers"))
        self._out.findings += claims.findings
        self._out.attributes |= claims.attributes
        self._out.set("own_claims", claims.entries)
        self._out.set("roles", self._role_entries(claims))

    def _role_entries(self, claims: Claims) -> list[str]:
        roles = self._roles.of_client(self._id)
        if roles and not claims.sends_roles:
            self._out.note(
                Fate.CHANGED, "roles",
                "its roles are the claim roles, not resource_access in access tokens",
                f"see: {COMMAND} client preview {self._id} PERSON",
            )  # fmt: skip
        named = [(role.name, role) for role in roles]
        if claims.sends_realm_roles:
            named += [(role.name, role) for role in self._roles.of_realm()]
        entries: list[str] = []
        for name, role in named:
            listed = [f"{name}={group}" for group in self._roles.givers(role)]
            if error := role_claims.error(listed):
                self._out.note(Fate.NOT_TAKEN, f"role {name[:60]}", str(error))
            else:
                entries += listed
        if len(entries) > role_claims.MOST:
            self._out.note(
                Fate.NOT_TAKEN, "roles",
                f"{len(entries)} pairs of role and group are more than {role_claims.MOST}",
                "the rest is left out; give the role's own group to fewer groups",
            )  # fmt: skip
        return entries[: role_claims.MOST]

    def _saml(self) -> None:
        # Registrations here have an identifier of their own beside the entity ID.
        is_short = bool(CLIENT_ID.fullmatch(self._id))
        self._out.client_id = self._id if is_short else str(uuid5(_NAMESPACE, self._id))
        self._common()
        self._out.set("saml_entity_id", self._id)
        master = self._absolute(text(self._entry.get("adminUrl")))
        listed = [
            self._attributes.get("saml_assertion_consumer_url_post") or master,
            *texts(self._entry.get("redirectUris")),
        ]
        answers = self._answers.redirect_uris.get(self._id, ())
        urls = self._exact(
            REDIRECT, filter(None, [*listed, *answers]), False, bool(answers)
        )  # fmt: skip
        if not urls:
            self._out.refuse(
                "it has no exact assertion consumer service",
                f"--redirect-uri {self._id}=URL",
            )
            return
        self._out.set("saml_acs_urls", urls)
        logout = self._attributes.get("saml_single_logout_service_url_redirect") or master
        if logout and not (error := client_urls.web_url_error(logout)):
            self._out.set("saml_logout_url", logout)
        elif logout:
            self._out.note(Fate.NOT_TAKEN, "single logout URL", f"{logout[:200]}: {error}")
        elif self._attributes.get("saml_single_logout_service_url_post"):
            self._out.note(Fate.NOT_TAKEN, "single logout by POST", "it is by redirect here")
        self._name_id()
        self._certificates()
        if self._is_on("saml.encrypt"):
            self._out.note(Fate.NOT_TAKEN, "encrypted assertions", "they are signed, and use TLS")
        claims = keycloak_mappers.SamlClaims(self._id, self._realm, self._roles)
        claims.take_all(self._entry.get("protocolMappers"))
        self._out.set("saml_attributes", claims.saml_attributes)
        self._out.set("own_claims", claims.entries)
        self._out.attributes |= claims.attributes
        self._out.findings += claims.findings
        self._out.note(
            Fate.CHANGED, "metadata", "the certificate and the URLs of this server are others",
            "give the application this server's metadata on the evening: docs/how-to/saml.md",
        )  # fmt: skip

    def _name_id(self) -> None:
        kind = self._attributes.get("saml_name_id_format", "username")
        names = {"username": "preferred_username", "email": "email"}
        self._out.set("saml_name_id", names.get(kind, "persistent"))
        if kind not in names:
            self._out.note(
                Fate.CHANGED, "NameID", f"each person gets another {kind[:20]} identifier than now",
                "if the application knows people by it, let it use the email address before",
            )  # fmt: skip

    def _certificates(self) -> None:
        if not self._is_on("saml.client.signature"):
            return
        lines = "".join(self._attributes.get("saml.signing.certificate", "").split())
        body = "\n".join(lines[i : i + 64] for i in range(0, len(lines), 64))
        pem = f"-----BEGIN CERTIFICATE-----\n{body}\n-----END CERTIFICATE-----\n"
        try:
            load_der_x509_certificate(base64.b64decode(lines, validate=True))
        except ValueError:
            self._out.note(
                Fate.QUESTION, "signed requests", "its certificate is missing or cannot be read",
                f"{COMMAND} client update {self._out.client_id} --certificate FILE "
                "--require-signed",
            )  # fmt: skip
            return
        self._out.set("saml_certificates", pem)
        self._out.set("saml_signed_requests", True)


def _public_jwk(certificate: bytes) -> dict[str, Any]:
    """Return the key of a certificate. Raises `ValueError` and `JoseError`."""
    key = load_der_x509_certificate(certificate).public_key()
    pem = key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    if isinstance(key, RSAPublicKey):
        return dict(RSAKey.import_key(pem).as_dict(private=False))
    if isinstance(key, EllipticCurvePublicKey):
        return dict(ECKey.import_key(pem).as_dict(private=False))
    raise ValueError("another kind of key")
