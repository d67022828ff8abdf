"""The table of a client's fields: one entry for each, which every surface reads.

The registration API and declarations have every field that is not fixed; the API has no logo.

A new field is an entry here, and the code that acts on it. One with a column of its own also needs
the column in `sso.models.clients`, and a migration. `tests/config/test_client_fields.py` compares
the surfaces with this table.
"""

from collections.abc import Mapping

from sso.config import client_urls
from sso.config.auth_methods import ANY_AUTH_METHOD, AUTH_METHODS, FAPI2, NO_AUTH_METHOD
from sso.config.auth_methods import PRIVATE_KEY_JWT as KEY
from sso.config.fields import Fact, Field, InPreset, Input, Kind, Option, Stored
from sso.config.urls import home_url_error
from sso.crypto.client_jwt import ALGORITHMS as CLIENT_ALGORITHMS
from sso.crypto.client_jwt import FAPI_ALGORITHMS
from sso.crypto.keys import ALGORITHMS as SERVER_ALGORITHMS
from sso.flow import forwarded, role_claims
from sso.flow.scopes import DEFAULT_SCOPE, SCOPES
from sso.i18n import N_
from sso.i18n.message import Message

AUTHORIZATION_CODE, REFRESH_TOKEN = "authorization_code", "refresh_token"
CLIENT_CREDENTIALS = "client_credentials"
DEVICE_CODE = "urn:ietf:params:oauth:grant-type:device_code"
TOKEN_EXCHANGE = "urn:ietf:params:oauth:grant-type:token-exchange"  # noqa: S105 (no secret)
JWT_BEARER = "urn:ietf:params:oauth:grant-type:jwt-bearer"
GRANT_TYPES = {
    AUTHORIZATION_CODE: N_("People sign in in their browser"),
    REFRESH_TOKEN: N_("Access is renewed"),
    CLIENT_CREDENTIALS: N_("It gets tokens for itself, without a person"),
    DEVICE_CODE: N_("People sign in on another device"),
    TOKEN_EXCHANGE: N_("It exchanges tokens for those of another API"),
    JWT_BEARER: N_("Another identity server vouches for its users"),
}
ID_TOKEN_CLAIMS = {
    "standard": N_("Who signed in, and when"),
    "all": N_("The whole profile, for applications that do not ask userinfo"),
}
NAME_IDS = {
    "persistent": N_("A random identifier, another one at each application"),
    "email": N_("The email address"),
    **{name: name for name in ("sub", "preferred_username", "nickname", "name", "phone_number")},
}
# The parts of the form below the first, in their order.
PANELS = (
    SIGN_OUT := N_("Start page and sign-out"),
    TOKENS := N_("Tokens and scopes"),
    ROLES := N_("Roles"),
    APIS := N_("APIs"),
    KEYS := N_("Keys in place of a secret"),
    ASSURANCE := N_("High assurance"),
    ASSERTIONS := N_("Identity assertions"),
    PROXY := N_("Behind a proxy"),
    PROVISIONING := N_("People in the application (SCIM)"),
    SAML := N_("SAML"),
)
_TABLE = (
    Field(
        "client_name", Kind.TEXT, "The name that users see.", default="", is_required=True,
        noun=Message("the client's name"),
        option=Option("name"),
        form=Input(N_("Name"), N_("People see it when they sign in, and on their account page.")),
        is_of_managers=True,
    ),
    Field(
        "redirect_uris", Kind.REDIRECT_URIS, "Redirect URIs, compared exactly.",
        default=[], is_required=True,
        noun=Message("the redirect address"),
        excess=N_("there are more than %(most)d redirect addresses"),
        option=Option("redirect-uri", "A redirect URI, compared exactly.", metavar="URI"),
        form=Input(N_("Redirect URIs, one on each line"), N_("Compared character by character."),
                   rows=2),
        fact=Fact(N_("Redirect URIs")),
        preset=InPreset("redirect_uris", "redirect URIs"),
        is_of_managers=True,
    ),
    Field(
        "post_logout_redirect_uris", Kind.REDIRECT_URIS,
        "Where the browser may go after sign-out.", default=[],
        noun=Message("the post-logout redirect address"),
        excess=N_("there are more than %(most)d post-logout redirect addresses"),
        option=Option("post-logout-redirect-uri", metavar="URI"),
        form=Input(N_("Post-logout redirect URIs, one on each line"),
                   N_("Where the browser may go after people have signed out."),
                   rows=2, panel=SIGN_OUT),
        fact=Fact(N_("Post-logout redirect URIs")),
        preset=InPreset("post_logout_redirect_uris", "post-logout redirect URIs"),
        is_of_managers=True,
    ),
    Field(
        "backchannel_logout_uri", Kind.URL, "URL that gets a logout token when a user signs out.",
        noun=Message("the back-channel logout address"), url_error=client_urls.backchannel_error,
        option=Option("backchannel-logout-uri", metavar="URI",
                      removal="Remove the back-channel logout URI."),
        form=Input(N_("Back-channel logout URI"),
                   N_("Gets a logout token when a person signs out."), panel=SIGN_OUT),
        fact=Fact(),
        preset=InPreset("backchannel_logout_uri", "back-channel logout URI"),
        is_of_managers=True,
    ),
    Field(
        "home_url", Kind.URL, "URL that starts the application, linked from the account page.",
        noun=Message("the home URL"), url_error=home_url_error,
        option=Option("home-url", metavar="URL", removal="Remove the home URL."),
        form=Input(N_("URL that starts the application"), N_("Linked on people's account pages."),
                   panel=SIGN_OUT),
        fact=Fact(),
        preset=InPreset("home_url"),
        is_of_managers=True,
    ),
    Field(
        "logo", Kind.IMAGE, "Its logo: PNG, JPEG, WebP or SVG, at most 64 kB.", stored=Stored.APART,
        option=Option("logo", metavar="FILE", removal="Remove the logo."),
        is_of_managers=True,
    ),
    Field(
        "issuer", Kind.URL,
        "The issuer of an earlier server, one of SSO_ISSUER_ALIASES, that its tokens name.",
        noun=Message("the issuer"),
        option=Option("issuer",
                      "The issuer that its tokens name: new, or one of SSO_ISSUER_ALIASES for an "
                      "application that still uses the addresses of an earlier server.",
                      metavar="new|URL", no_value="new"),
        form=Input(N_("Issuer of an earlier server"),
                   N_("One of SSO_ISSUER_ALIASES, as long as the application uses it. If empty, "
                      "this server's own."), panel=TOKENS),
        fact=Fact(),
    ),
    Field(
        "subject_attribute", Kind.TEXT,
        "The attribute that has the subjects of people who come from an earlier server.",
        noun=Message("the attribute of subjects"),
        option=Option("subject-attribute", metavar="NAME", removal="All have their ID as subject."),
        form=Input(N_("Attribute with subjects of an earlier server"),
                   N_("What it knows people by (sub); without a value, their ID."), panel=TOKENS),
        fact=Fact(),
    ),
    Field(
        "scope", Kind.WORDS, "The scopes that it can request, separated by spaces.",
        default=DEFAULT_SCOPE, choices=tuple(SCOPES),
        option=Option("scope"),
        form=Input(N_("Scopes that it may request"),
                   N_("What it may learn about people; offline_access renews its access while "
                      "they are away."), panel=TOKENS),
        fact=Fact(),
        preset=InPreset("scope", "scope"),
    ),
    Field(
        "token_endpoint_auth_method", Kind.CHOICE,
        "How the application sends its secret, or that it signs with a key.",
        default=ANY_AUTH_METHOD, choices=(*AUTH_METHODS, NO_AUTH_METHOD),
        titles={
            ANY_AUTH_METHOD: N_("A secret, in the header or in the form"),
            "client_secret_post": N_("A secret in the form (client_secret_post)"),
            "client_secret_basic": N_("A secret in the header (client_secret_basic)"),
            NO_AUTH_METHOD: N_("No secret: it runs on people's devices (public client)"),
            KEY: N_("A private key, or JWTs of a trusted issuer (private_key_jwt)"),
        },
        noun=Message("the authentication method"),
        option=Option("auth-method", choices=AUTH_METHODS),
        form=Input(N_("How it authenticates"),
                   N_("Most applications that run on a server have a secret.")),
        fact=Fact(),
        preset=InPreset("auth_method", "client authentication"),
    ),
    Field(
        "grant_types", Kind.CHOICES, "The grants that it may use.",
        default=[AUTHORIZATION_CODE, REFRESH_TOKEN], choices=tuple(GRANT_TYPES),
        titles=GRANT_TYPES, noun=Message("the grant type"),
        form=Input(N_("How it gets tokens"),
                   N_("Services and devices need a choice of their own here."), panel=TOKENS),
        fact=Fact(),
    ),
    Field(
        "response_types", Kind.NAMES, "What authorization responses hold.", is_fixed=True,
        default=["code"],
    ),
    Field(
        "id_token_signed_response_alg", Kind.CHOICE, "Algorithm that signs its identity tokens.",
        default="RS256", choices=SERVER_ALGORITHMS,
        noun=Message("the identity token algorithm"),
        option=Option("id-token-alg"),
        form=Input(N_("Algorithm of identity tokens"),
                   N_("RS256 works everywhere; choose another one if its documentation asks for "
                      "it."), panel=TOKENS),
        fact=Fact(),
        preset=InPreset("id_token_alg", "ID tokens signed with"),
    ),
    Field(
        "id_token_claims", Kind.CHOICE, "all: identity tokens have the claims of userinfo.",
        default="standard", choices=tuple(ID_TOKEN_CLAIMS), titles=ID_TOKEN_CLAIMS,
        noun=Message("the choice of identity token claims"),
        option=Option("id-token-claims"),
        form=Input(N_("What identity tokens contain"),
                   N_("Most applications read the profile from userinfo."), panel=TOKENS),
        preset=InPreset("id_token_claims", "claims in the ID token"),
    ),
    Field(
        "groups", Kind.NAMES, "Only members of one of these groups can use it.", default=[],
        option=Option("group"),
        form=Input(N_("Only members of these groups, one on each line"),
                   N_("If empty, everyone may use it."), rows=2),
        fact=Fact(N_("Who may use it"), empty=N_("Everyone")),
    ),
    Field(
        "roles", Kind.ROLES,
        "Its roles, each with a group: userinfo has those of the user, as the claim roles.",
        default=[],
        option=Option("role", "A role, and a group whose members have it.",
                      metavar="ROLE=GROUP", also="role-of"),
        form=Input(N_("Roles, one on each line"),
                   N_("The role and a group whose members have it: editor=staff"), rows=2,
                   panel=ROLES),
        fact=Fact(N_("Roles")),
    ),
    Field(
        "roles_shape", Kind.CHOICE, "The shape of the claim roles: list, string or object.",
        default=role_claims.LIST, choices=tuple(role_claims.SHAPES), titles=role_claims.SHAPES,
        noun=Message("the shape of roles"),
        option=Option("roles-shape"),
        form=Input(N_("How it gets the roles"), N_("The shape of the claim roles in userinfo."),
                   panel=ROLES),
    ),
    Field(
        "own_claims", Kind.CLAIMS,
        "Its own claims, each with a source: attribute:NAME, groups:PREFIX, group:NAME,VALUE, "
        "constant:TEXT or json:VALUE.",
        default=[],
        option=Option("claim", "A claim of its own, and its source: attribute:NAME, groups:PREFIX, "
                      "group:NAME,VALUE, constant:TEXT or json:VALUE.",
                      metavar="CLAIM[@PLACE,…]=SOURCE"),
        form=Input(N_("Own claims, one on each line"),
                   N_("The claim and its source: department=attribute:department"), rows=2,
                   panel=ROLES),
        fact=Fact(N_("Own claims")),
    ),
    Field(
        "apis", Kind.APIS, "The APIs that it can request tokens for: URI or URI=SCOPE,…",
        default=[],
        option=Option("api", "An API that it can request tokens for; without scopes, all scopes.",
                      metavar="URI[=SCOPE,…]"),
        form=Input(N_("APIs that it may use, one on each line"),
                   N_("The identifier alone, or with scopes: https://api.example.com=read,write"),
                   rows=2, panel=APIS),
        fact=Fact(N_("APIs")),
    ),
    Field(
        "default_api", Kind.TEXT, "The API that its tokens are for if it names no resource.",
        noun=Message("the default API"),
        option=Option("default-api", metavar="URI", removal="Remove the default API."),
        form=Input(N_("API of requests that name none"),
                   N_("One of those above. If empty, such tokens are for this server alone."),
                   panel=APIS),
        fact=Fact(),
    ),
    Field(
        "exchange_from", Kind.APIS,
        "The APIs whose access tokens it may exchange.", default=[],
        option=Option("exchange-from", "An API whose access tokens it may exchange.",
                      metavar="URI"),
        form=Input(N_("APIs as which it acts, one on each line"),
                   N_("It may exchange the access tokens that people's applications send there."),
                   rows=2, panel=APIS),
        fact=Fact(N_("Exchanges access tokens for")),
    ),
    Field(
        "id_jag_audiences", Kind.ISSUERS,
        "Servers that it gets identity assertions (ID-JAG) for: ISSUER CLIENT_ID [SCOPE…]",
        default=[], noun=Message("the audience of identity assertions"),
        url_error=client_urls.id_jag_audience_error,
        option=Option("id-jag-audience",
                      "A server that it gets identity assertions (ID-JAG) for, its client ID there "
                      "and the scopes that it can request there; without scopes, any.",
                      metavar="'ISSUER CLIENT_ID [SCOPE…]'"),
        form=Input(N_("Servers that it gets identity assertions for, one on each line"),
                   N_("The issuer, the client ID there, and the scopes that it may request there: "
                      "https://auth.example.com my-client read write"), rows=2,
                   panel=ASSERTIONS),
        fact=Fact(N_("Gets identity assertions for")),
    ),
    Field(
        "id_jag_issuers", Kind.ISSUERS,
        "Issuers whose identity assertions (ID-JAG) it may present.",
        default=[], noun=Message("the issuer of identity assertions"),
        url_error=client_urls.issuer_error,
        option=Option("id-jag-issuer", metavar="URL"),
        form=Input(N_("Issuers whose identity assertions it may present, one on each line"),
                   N_("Servers that vouch for their users here: https://idp.example.com"), rows=2,
                   panel=ASSERTIONS),
        fact=Fact(N_("Presents identity assertions of")),
    ),
    Field(
        "proxy_urls", Kind.ORIGINS,
        "Where it is reached behind a proxy that asks this server (forward auth): scheme and host.",
        default=[], noun=Message("the URL behind the proxy"), url_error=client_urls.origin_error,
        option=Option("proxy-url", metavar="URL"),
        form=Input(N_("URLs behind a proxy, one on each line"),
                   N_("For applications without a sign-in of their own: the proxy asks this server."
                      ), rows=2, panel=PROXY),
        fact=Fact(N_("URLs behind a proxy")),
        preset=InPreset("proxy_urls", "URL behind the proxy"),
    ),
    Field(
        "public_paths", Kind.PATHS,
        "Paths that need no sign-in behind the proxy: /health, or /static/* with all below.",
        default=[], noun=Message("the public path"), url_error=forwarded.public_path_error,
        option=Option("public-path", metavar="PATH"),
        form=Input(N_("Paths that need no sign-in behind the proxy, one on each line"),
                   N_("One path, such as /health, or all below it: /static/*"), rows=2,
                   panel=PROXY),
        fact=Fact(N_("Paths without sign-in")),
    ),
    Field(
        "scim_url", Kind.URL,
        "Where people who may use it are created, changed and deactivated: the base URL of its "
        "SCIM 2.0 service.",
        noun=Message("the SCIM URL"), url_error=client_urls.scim_url_error,
        option=Option("scim-url", metavar="URL", removal="Stop provisioning; people there stay."),
        form=Input(N_("SCIM URL"),
                   N_("People who may use the application are created, changed and deactivated "
                      "there: https://app.example.com/scim/v2"), panel=PROVISIONING),
        fact=Fact(),
    ),
    Field(
        "scim_attributes", Kind.CLAIMS,
        "Attributes that are also sent by SCIM, each with a source as claims have.",
        default=[],
        option=Option("scim-attribute", "An attribute that is also sent by SCIM, and its source as "
                      "claims have it: title=attribute:job_title.", metavar="NAME=SOURCE"),
        form=Input(N_("Attributes that are also sent by SCIM, one on each line"),
                   N_("The attribute and its source: title=attribute:job_title"), rows=2,
                   panel=PROVISIONING),
        fact=Fact(N_("Also sent by SCIM")),
    ),
    Field("preset", Kind.OBJECT, "The known application that it was registered for."),
    Field(
        "first_party", Kind.SWITCH, "Do not ask users for consent.",
        default=False, stored=Stored.COLUMN,
        option=Option("first-party", update="Whether users are not asked for consent."),
        form=Input(N_("Do not ask people for consent"),
                   N_("For applications of your own organization.")),
        fact=Fact(N_("Consent"), on=N_("People are not asked."), off=N_("People are asked once."),
                  each_time=N_("People are asked each time.")),
    ),
    Field(
        "require_pkce", Kind.SWITCH, "Refuse requests without PKCE.",
        default=False, stored=Stored.COLUMN,
        option=Option("require-pkce", update="Whether requests without PKCE are refused."),
        form=Input(N_("Refuse requests without PKCE"),
                   N_("Protects sign-ins from stolen codes. Most applications send it; untick this "
                      "for one that cannot.")),
        fact=Fact("PKCE", on=N_("Required"), off=N_("Recommended, not required")),
        preset=InPreset("require_pkce", "PKCE"),
    ),
    Field(
        "require_mfa", Kind.SWITCH, "Require a second factor.",
        default=False, stored=Stored.COLUMN,
        option=Option("require-mfa", update="Whether a second factor is required."),
        form=Input(N_("Require two-step verification"),
                   N_("People without a second factor are asked to set one up.")),
        fact=Fact(N_("Two-step verification"), on=N_("Required"), off=N_("Not required")),
    ),
    Field(
        "require_pushed_authorization_requests", Kind.SWITCH,  # RFC 9126 §6
        "Refuse authorization requests that are not pushed.",
        option=Option("require-par", update="Whether authorization requests have to be pushed."),
        form=Input(N_("Refuse authorization requests that are not pushed (PAR)"),
                   N_("The application sends its request to this server first, so that the browser "
                      "cannot change it."), panel=ASSURANCE),
        fact=Fact(N_("Pushed requests (PAR)"), on=N_("Required"), off=""),
    ),
    Field(
        "dpop_bound_access_tokens", Kind.SWITCH,  # RFC 9449 §5.2
        "Refuse token requests without a DPoP proof.",
        option=Option("require-dpop", update="Whether token requests need a DPoP proof."),
        form=Input(N_("Refuse token requests without a DPoP proof"),
                   N_("Its tokens are bound to a key, so that nobody else can use them."),
                   panel=ASSURANCE),
        fact=Fact("DPoP", on=N_("Required"), off=""),
    ),
    Field(
        "require_dpop_nonce", Kind.SWITCH, "Refuse DPoP proofs without a nonce of this server.",
        option=Option("require-dpop-nonce",
                      update="Whether DPoP proofs need a nonce of this server."),
        form=Input(N_("Refuse DPoP proofs without a nonce"),
                   N_("This server gives the nonce, so that proofs cannot be made in advance."),
                   panel=ASSURANCE),
        fact=Fact(N_("DPoP nonce"), on=N_("Required"), off=""),
    ),
    Field(
        "scim_everyone", Kind.SWITCH,
        "Provision everybody by SCIM, if no group is required.",
        option=Option("scim-everyone",
                      update="Whether everybody is provisioned, if no group is required."),
        form=Input(N_("Provision everybody, if no group is required"),
                   N_("Otherwise, members of its groups are provisioned."), panel=PROVISIONING),
        fact=Fact(N_("Provisions everybody"), off=""),
    ),
    Field(
        "scim_groups", Kind.SWITCH,
        "Send its groups by SCIM, too, with the people who are in them.",
        option=Option("scim-groups", update="Whether its groups are sent by SCIM, too."),
        form=Input(N_("Send its groups, too"),
                   N_("The groups that it requires are created there, with the people who are in "
                      "them."), panel=PROVISIONING),
        fact=Fact(N_("Sends its groups"), off=""),
    ),
    Field(
        "scim_delete", Kind.SWITCH,
        "Delete people by SCIM who lose access, in place of deactivating them.",
        option=Option("scim-delete",
                      update="Whether people who lose access are deleted there, and not only "
                      "deactivated."),
        form=Input(N_("Delete people there who lose access"),
                   N_("Otherwise they are deactivated there."), panel=PROVISIONING),
        fact=Fact(N_("Deletes people there"), off=""),
    ),
    Field(
        "profile", Kind.CHOICE, "fapi2: FAPI 2.0 Security Profile. Needs jwks or jwks_uri.",
        choices=(FAPI2,), titles={FAPI2: "FAPI 2.0"},
        noun=Message("the profile"),
        option=Option("profile", "fapi2: FAPI 2.0 Security Profile. Needs --jwks or --jwks-uri.",
                      removal="Remove the profile; the rest stays."),
        form=Input(N_("Profile"),
                   N_("FAPI 2.0 needs public keys, and turns on PKCE, PAR and DPoP."),
                   panel=ASSURANCE, empty=N_("none")),
        fact=Fact(),
        preset=InPreset("profile", "profile"),
    ),
    Field(
        "jwks", Kind.KEY_SET, "The application's public keys: a JWK set.",
        option=Option("jwks", metavar="FILE"),
        form=Input(N_("Its public keys, as a JWK set"),
                   N_('JSON such as {"keys": [...]}, or one key. Never paste a private key.'),
                   rows=4, panel=KEYS),
        fact=Fact(N_("Public keys")),
        is_of_managers=True,
    ),
    Field(
        "jwks_uri", Kind.URL, "URL of the application's public keys.",
        url_error=client_urls.jwks_uri_error,
        option=Option("jwks-uri", metavar="URL"),
        form=Input(N_("URL of its public keys"), N_("Or those of the trusted issuer."), panel=KEYS),
        fact=Fact(),
        is_of_managers=True,
    ),
    Field(
        "trust_issuer", Kind.URL,
        "Issuer whose JWTs authenticate the application, instead of its own key.",
        noun=Message("the trusted issuer"), url_error=client_urls.issuer_error,
        option=Option("trust-issuer", metavar="URL", removal="Remove the trusted issuer."),
        form=Input(N_("Trusted issuer"),
                   N_("Its JWTs authenticate the application, as those of GitHub Actions do."),
                   panel=KEYS),
        fact=Fact(),
    ),
    Field(
        "trust_subject", Kind.TEXT,
        "The subject that these JWTs must have; * stands for any characters.",
        noun=Message("the trusted subject"),
        option=Option("trust-subject", metavar="PATTERN"),
        form=Input(N_("Subject of these JWTs"), N_("* stands for any characters."), panel=KEYS),
        fact=Fact(),
    ),
    Field(
        "trust_audience", Kind.TEXT,
        "The audience that these JWTs must have, by default this server's issuer.",
        noun=Message("the trusted audience"),
        option=Option("trust-audience", metavar="AUDIENCE",
                      removal="Expect this server's issuer as audience."),
        form=Input(N_("Audience of these JWTs"), N_("If empty, this server's issuer."),
                   panel=KEYS),
        fact=Fact(),
    ),
    Field(
        "token_endpoint_auth_signing_alg", Kind.CHOICE, f"The one algorithm for {KEY}.",
        choices=CLIENT_ALGORITHMS, fapi_choices=FAPI_ALGORITHMS,
        noun=Message("the algorithm of client assertions"),
        option=Option("auth-alg", removal=f"Allow every algorithm for {KEY}."),
        form=Input(N_("Algorithm with which it authenticates"),
                   N_("With a private key alone."), panel=KEYS, empty=N_("Any that its keys fit")),
        fact=Fact(),
    ),
    Field(
        "request_object_signing_alg", Kind.CHOICE, "Algorithm that signs its request objects.",
        choices=CLIENT_ALGORITHMS, fapi_choices=FAPI_ALGORITHMS,  # RFC 9101 §10.5
        noun=Message("the algorithm of request objects"),
        option=Option("request-object-alg", removal="Refuse request objects."),
        form=Input(N_("Algorithm of its request objects"),
                   N_("The application signs its authorization requests with one of its keys."),
                   panel=ASSURANCE, empty=N_("It sends none")),
        fact=Fact(),
    ),
    Field(
        "authorization_signed_response_alg", Kind.CHOICE,
        "Algorithm that signs answers for response_mode=jwt (JARM).",
        choices=CLIENT_ALGORITHMS, fapi_choices=FAPI_ALGORITHMS,
        noun=Message("the algorithm of authorization responses"),
        option=Option("response-alg", removal="Do not sign authorization responses."),
        form=Input(N_("Algorithm of authorization responses (JARM)"),
                   N_("This server signs its answers if the application asks for it."),
                   panel=ASSURANCE, empty=N_("They are not signed")),
        fact=Fact(),
    ),
    Field(
        "saml_entity_id", Kind.TEXT, "SAML: the entity ID of the service provider.",
        noun=Message("the entity ID"),
        option=Option("entity-id", metavar="ID"),
        form=Input(N_("SAML: entity ID"), N_("Only for applications that speak SAML."),
                   panel=SAML),
        fact=Fact(),
        preset=InPreset("entity_id", "entity ID"),
    ),
    Field(
        "saml_acs_urls", Kind.REDIRECT_URIS,
        "SAML: URLs that receive assertions, compared exactly; the first is the default.",
        default=[],
        noun=Message("the assertion consumer service"),
        excess=N_("there are more than %(most)d assertion consumer services"),
        option=Option("acs-url", "SAML: a URL that receives assertions.", metavar="URL"),
        form=Input(N_("SAML: assertion consumer services, one on each line"),
                   N_("They get the assertions; the first is the default."), rows=2, panel=SAML),
        fact=Fact(N_("SAML: assertion consumer services")),
        preset=InPreset("acs_urls", "assertion consumer services"),
        is_of_managers=True,
    ),
    Field(
        "saml_logout_url", Kind.URL, "SAML: URL for single logout by redirect.",
        noun=Message("the single logout URL"), url_error=client_urls.web_url_error,
        option=Option("slo-url", metavar="URL", removal="Remove the single logout URL."),
        form=Input(N_("SAML: single logout URL"),
                   N_("Where the browser goes when a person signs out."), panel=SAML),
        fact=Fact(),
        preset=InPreset("logout_url", "single logout URL"),
        is_of_managers=True,
    ),
    Field(
        "saml_name_id", Kind.CHOICE,
        "SAML: who signs in, as NameID: persistent, email, or a claim. Default: persistent.",
        choices=tuple(NAME_IDS), titles=NAME_IDS,
        noun=Message("the NameID"),
        option=Option("name-id"),
        form=Input(N_("SAML: NameID"), N_("As what the application knows a person."), panel=SAML,
                   empty=N_("As usual: a random identifier, another one at each application")),
        fact=Fact(),
        preset=InPreset("name_id", "NameID"),
    ),
    Field(
        "saml_attributes", Kind.ATTRIBUTES,
        "SAML: attributes and the claims they have, NAME=CLAIM; without any, all claims.",
        default=[],
        noun=Message("the SAML attribute"),
        option=Option("attribute", "SAML: an attribute, and the claim that it has.",
                      metavar="NAME=CLAIM"),
        form=Input(N_("SAML: attributes, one on each line"),
                   N_("The name and the claim: mail=email. Without any, all claims are sent."),
                   rows=2, panel=SAML),
        fact=Fact(N_("SAML: attributes")),
        preset=InPreset("attributes", "attributes"),
    ),
    Field(
        "saml_certificates", Kind.CERTIFICATES,
        "SAML: certificates that verify the requests of the service provider.",
        noun=Message("the certificate"),
        option=Option("certificate", metavar="FILE", removal="Remove the certificates."),
        form=Input(N_("SAML: certificates"),
                   N_("PEM. They verify the requests that the application signs."), rows=4,
                   panel=SAML),
        fact=Fact(),
        is_of_managers=True,
    ),
    Field(
        "saml_metadata_expires", Kind.TEXT, "SAML: when the metadata that was imported expires.",
        noun=Message("the end of the metadata"),
    ),
    Field(
        "saml_signed_requests", Kind.SWITCH, "SAML: refuse requests that are not signed.",
        option=Option("require-signed", update="SAML: whether requests have to be signed."),
        form=Input(N_("SAML: refuse requests that are not signed"),
                   N_("Needs a certificate."), panel=SAML),
        fact=Fact(N_("SAML: signed requests"), on=N_("Required"), off=""),
    ),
    Field("disabled", Kind.SWITCH, "Whether nobody can use it.", stored=Stored.APART),
)  # fmt: skip

FIELDS: Mapping[str, Field] = {entry.name: entry for entry in _TABLE}
FIXED = [entry for entry in _TABLE if entry.is_fixed]
# As documents list them: metadata first, and switches after what has values.
SETTABLE = sorted(
    (entry for entry in _TABLE if not entry.is_fixed),
    key=lambda entry: (entry.stored, entry.kind is Kind.SWITCH),
)
METADATA = [entry for entry in SETTABLE if entry.stored is Stored.METADATA]
COLUMNS = [entry for entry in SETTABLE if entry.stored is Stored.COLUMN]
# What those change, too, who manage only some applications.
OF_MANAGERS = frozenset(entry.name for entry in _TABLE if entry.is_of_managers)
IN_API = [entry for entry in SETTABLE if entry.kind is not Kind.IMAGE]
