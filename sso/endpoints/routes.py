"""The table of routes: path, name, view and properties of each (see `web.routing.Route`)."""

from typing import TYPE_CHECKING

from flask import Flask, redirect, url_for
from werkzeug.wrappers import Response

from sso.audit.events import Event
from sso.config.settings import Settings
from sso.crypto import keys
from sso.endpoints import (
    account,
    api,
    apis,
    authorize,
    confirmation,
    consent,
    device,
    factors,
    language,
    mailed,
    old_addresses,
    openapi,
    page,
    protocol,
    second_factor,
    sign_in,
    sign_out,
    terms,
    upstream,
    upstream_sign_in,
)
from sso.endpoints.admin import access
from sso.flow import permissions
from sso.process import program
from sso.ratelimit import limiting
from sso.web import routing
from sso.web.routing import (
    ADMIN,
    ANY,
    ANY_ORIGIN,
    BOTH,
    EVERY,
    GET,
    POST,
    PROTOCOL,
    REGISTERED_ORIGINS,
    Route,
)

if TYPE_CHECKING:
    from sso.endpoints import forward_auth, saml
    from sso.endpoints.admin import apis as admin_apis
    from sso.endpoints.admin import (
        appearance,
        applications,
        applications_list,
        attributes,
        audit_trail,
        groups,
        mail_queue,
        mcp,
        overview,
        people,
        people_import,
        people_list,
        provisioning,
        server_pages,
        session_list,
        troubleshooting,
        webhooks,
    )
    from sso.endpoints.admin import keys as admin_keys
else:
    saml = program.late_functions("sso.endpoints.saml")  # 12 MB
    # 3 MB, and 5 for what the checks of the overview use.
    appearance = program.late_functions("sso.endpoints.admin.appearance")
    applications = program.late_functions("sso.endpoints.admin.applications")
    applications_list = program.late_functions("sso.endpoints.admin.applications_list")
    attributes = program.late_functions("sso.endpoints.admin.attributes")
    forward_auth = program.late_functions("sso.endpoints.forward_auth")
    audit_trail = program.late_functions("sso.endpoints.admin.audit_trail")
    groups = program.late_functions("sso.endpoints.admin.groups")
    mail_queue = program.late_functions("sso.endpoints.admin.mail_queue")
    mcp = program.late_functions("sso.endpoints.admin.mcp")
    overview = program.late_functions("sso.endpoints.admin.overview")
    people = program.late_functions("sso.endpoints.admin.people")
    people_import = program.late_functions("sso.endpoints.admin.people_import")
    people_list = program.late_functions("sso.endpoints.admin.people_list")
    admin_apis = program.late_functions("sso.endpoints.admin.apis")
    admin_keys = program.late_functions("sso.endpoints.admin.keys")
    server_pages = program.late_functions("sso.endpoints.admin.server_pages")
    session_list = program.late_functions("sso.endpoints.admin.session_list")
    provisioning = program.late_functions("sso.endpoints.admin.provisioning")
    troubleshooting = program.late_functions("sso.endpoints.admin.troubleshooting")
    webhooks = program.late_functions("sso.endpoints.admin.webhooks")


def home() -> Response:
    """Redirect to the account page."""
    return redirect(url_for("pages.account"), 303)


# fmt: off
ROUTES = (
    # Called by other sites and by backends, which authenticate without a CSRF token.
    # End-session checks the token itself if it asks the user.
    Route("{base}/oauth2/authorize", "authorize", authorize.authorize, has_csrf=False),
    Route("{base}/oauth2/end-session", "end_session", sign_out.end_session, has_csrf=False,
          refused=Event.END_SESSION_REFUSED),
    Route("{base}/oauth2/par", "pushed_request", protocol.pushed_request, POST, PROTOCOL,
          cors=REGISTERED_ORIGINS, refused=Event.PUSHED_REQUEST_REFUSED,
          guessing=limiting.CLIENT_AUTHENTICATION),
    Route("{base}/oauth2/token", "token", protocol.token, POST, PROTOCOL, cors=REGISTERED_ORIGINS,
          refused=Event.TOKENS_REFUSED, guessing=limiting.CLIENT_AUTHENTICATION),
    Route("{base}/oauth2/device_authorization", "device_authorization",
          protocol.device_authorization_request, POST, PROTOCOL, cors=REGISTERED_ORIGINS,
          refused=Event.DEVICE_AUTHORIZATION_REFUSED, guessing=limiting.CLIENT_AUTHENTICATION),
    Route("{base}/oauth2/revoke", "revoke", protocol.revoke, POST, PROTOCOL,
          cors=REGISTERED_ORIGINS, refused=Event.REVOCATION_REFUSED,
          guessing=limiting.CLIENT_AUTHENTICATION),
    Route("{base}/oauth2/introspect", "introspect", protocol.introspect, POST, PROTOCOL,
          refused=Event.INTROSPECTION_REFUSED, guessing=limiting.CLIENT_AUTHENTICATION),
    Route("{base}/oauth2/userinfo", "userinfo", protocol.userinfo, blueprint=PROTOCOL,
          cors=REGISTERED_ORIGINS),
    # A next key is published for longer than this before its first use.
    Route("{base}/oauth2/jwks", "jwks", protocol.jwks, GET, PROTOCOL, cors=ANY_ORIGIN,
          max_age=keys.JWKS_MAX_AGE),
    # The URL that clients of better-auth use.
    Route("{base}/jwks", "jwks_alias", protocol.jwks, GET, PROTOCOL, cors=ANY_ORIGIN,
          max_age=keys.JWKS_MAX_AGE),
    Route("{base}/.well-known/openid-configuration", "discovery", protocol.discovery, GET,
          PROTOCOL, cors=ANY_ORIGIN, max_age=3600),
    # RFC 8414 §3.1: the well-known part stands before the issuer's path.
    Route("/.well-known/oauth-authorization-server{base}", "metadata", protocol.discovery, GET,
          PROTOCOL, cors=ANY_ORIGIN, max_age=3600),
    Route("/.well-known/openid-configuration{base}", "discovery_inserted", protocol.discovery, GET,
          PROTOCOL, cors=ANY_ORIGIN, max_age=3600),
    # Of APIs, for the proxies in front of them.
    Route("{base}/protected-resource/<api_id>", "protected_resource", protocol.protected_resource,
          GET, PROTOCOL, cors=ANY_ORIGIN, max_age=300),
    # Asked by the proxies in front of applications (`config.urls.FORWARD_AUTH`).
    Route("{base}/forward-auth/<client_id>", "forward_auth", forward_auth.check, EVERY, PROTOCOL,
          refused=Event.PROXY_REQUEST_REFUSED, quiet=True),
    Route("{base}/forward-auth/<client_id>/<rest:path>", "forward_auth_below", forward_auth.check,
          EVERY, PROTOCOL, refused=Event.PROXY_REQUEST_REFUSED, quiet=True),
    Route("{base}/saml/metadata", "saml_metadata", saml.metadata, GET, PROTOCOL, cors=ANY_ORIGIN,
          max_age=300),
    Route("{base}/saml/sso", "saml_sign_on", saml.sign_on, has_csrf=False,
          refused=Event.SAML_REFUSED),
    Route("{base}/saml/slo", "saml_logout", saml.logout, GET, refused=Event.SAML_LOGOUT_REFUSED),
    Route("{base}/client-logo", "client_logo", protocol.client_logo, GET, PROTOCOL),
    Route("{base}/picture/<file>", "picture", protocol.picture, GET, PROTOCOL, cors=ANY_ORIGIN),
    Route("{base}/oauth2/register", "registrations", api.registrations, BOTH, PROTOCOL,
          cors=ANY_ORIGIN),
    Route("{base}/oauth2/register/<client_id>", "registered_client",
          api.registered_client, ("GET", "PUT", "DELETE"), PROTOCOL),
    Route("{base}/oauth2/register/<client_id>/secret", "client_secret",
          api.client_secret, POST, PROTOCOL),
    Route("{base}/apis", "registered_apis", apis.registered_apis, BOTH, PROTOCOL),
    Route("{base}/apis/<api_id>", "registered_api", apis.registered_api,
          ("GET", "PUT", "DELETE"), PROTOCOL),
    Route("{base}/apis/<api_id>/secret", "api_secret", apis.api_secret, POST, PROTOCOL),
    Route("{base}/openapi.json", "openapi", openapi.openapi, GET, PROTOCOL, cors=ANY_ORIGIN,
          max_age=3600),
    Route("{base}/scim/v2/<path:path>", "scim", protocol.scim, ANY, PROTOCOL),
    Route("{base}/backchannel-logout/<provider_id>", "backchannel_logout",
          sign_out.backchannel_logout, POST, PROTOCOL),
    # Monitoring asks every few seconds.
    Route("/healthz", "healthz", protocol.healthz, GET, PROTOCOL, quiet=True),
    Route("/readyz", "readyz", protocol.readyz, GET, PROTOCOL, quiet=True),

    # People who type only the host name want their account page. A proxy may add the base path.
    Route("{base}/", "home", home, GET),
    Route("/", "root_home", home, GET),
    Route("{base}/language", "language", language.language, has_csrf=False),
    Route("{base}/sign-in", "sign_in", sign_in.sign_in, guessing=limiting.SIGN_IN),
    Route("{base}/sign-in/code", "sign_in_code", sign_in.sign_in_code,
          guessing=limiting.SIGN_IN_CODE, flooding=limiting.SIGN_IN_CODE_REQUEST),
    Route("{base}/sign-in/passkey", "passkey_sign_in", sign_in.passkey_sign_in,
          guessing=limiting.PASSKEY),
    Route("{base}/sign-in/directory/<provider_id>", "directory_sign_in",
          upstream_sign_in.directory_sign_in, guessing=limiting.SIGN_IN),
    Route("{base}/sign-in/callback/<provider_id>", "upstream_callback", upstream.callback, GET,
          guessing=upstream.LIMIT),
    Route("{base}/sign-in/connect", "connect", upstream_sign_in.connect),
    Route("{base}/second-factor", "second_factor", second_factor.second_factor,
          guessing=limiting.SECOND_FACTOR),
    Route("{base}/consent", "consent", consent.consent),
    Route("{base}/terms", "terms", terms.terms),
    Route("{base}/device", "device", device.device, guessing=limiting.DEVICE_CODE),
    Route("{base}/sign-out", "sign_out", sign_out.sign_out),
    Route("{base}/forgotten-password", "forgotten_password", mailed.forgotten_password,
          flooding=limiting.PASSWORD_RESET),
    Route("{base}/new-password", "new_password", mailed.new_password),
    Route("{base}/verify-email", "verify_email", mailed.verify_email),
    Route("{base}/sign-up", "sign_up", mailed.sign_up, flooding=limiting.SIGN_UP),
    Route("{base}/complete-sign-up", "complete_sign_up", mailed.complete_sign_up),
    Route("{base}/account", "account", account.account, guessing=limiting.PASSWORD_CHECK),
    Route("{base}/account/email", "account_email", mailed.account_email,
          guessing=limiting.PASSWORD_CHECK, flooding=limiting.VERIFICATION),
    Route("{base}/account/picture", "account_picture", account.picture, sign_in_back="picture",
          flooding=limiting.PICTURE),
    Route("{base}/account/confirm", "confirm", confirmation.confirm, GET),
    Route("{base}/account/delete", "delete_account", account.delete_account,
          guessing=limiting.PASSWORD_CHECK),
    Route("{base}/account/activity", "activity", account.activity, GET),
    Route("{base}/account/factors", "factors", factors.factors, sign_in_back="factors"),
    Route("{base}/account/identities", "identities", account.identities,
          sign_in_back="identities"),
    Route("{base}/account/factors/code", "factor_code", factors.factor_code,
          sign_in_back="factors", guessing=limiting.EMAILED_CODE, flooding=limiting.VERIFICATION),
    Route("{base}/account/factors/totp", "totp_setup", factors.totp_setup,
          sign_in_back="factors"),
    Route("{base}/account/factors/recovery-codes", "recovery_codes", factors.download_codes, POST),
    Route("{base}/account/factors/link", "factor_link", factors.factor_link),

    # For administrators; other signed-in users get 404 (see `admin.access`).
    Route("{base}/admin", "overview", overview.overview, GET, ADMIN, needs=permissions.STAFF,
          limited=permissions.LIMITED_STAFF),
    Route("{base}/admin/checks", "checks", overview.checks, blueprint=ADMIN,
          flooding=limiting.TEST_SIGN_IN, needs=permissions.SERVER),
    Route("{base}/admin/people", "people", people_list.people, blueprint=ADMIN,
          needs=permissions.READ_PEOPLE, limited=permissions.READ_PEOPLE),
    Route("{base}/admin/people/import", "people_import", people_import.people_import,
          blueprint=ADMIN, needs=permissions.WRITE_PEOPLE),
    Route("{base}/admin/person/new", "person_new", people.new, blueprint=ADMIN,
          needs=permissions.WRITE_PEOPLE, limited=permissions.WRITE_PEOPLE),
    Route("{base}/admin/people/export", "people_export", people_list.export, GET, ADMIN,
          needs=permissions.WRITE_PEOPLE, limited=permissions.WRITE_PEOPLE),
    Route("{base}/admin/person", "person", people.person, blueprint=ADMIN,
          needs=permissions.READ_PEOPLE, limited=permissions.READ_PEOPLE),
    Route("{base}/admin/person/picture", "person_picture", people.picture, blueprint=ADMIN,
          flooding=limiting.PICTURE, needs=permissions.CHANGE_PEOPLE,
          limited=permissions.CHANGE_PEOPLE),
    Route("{base}/admin/applications", "applications", applications_list.applications,
          blueprint=ADMIN, needs=permissions.APPLICATIONS, limited=permissions.APPLICATIONS),
    Route("{base}/admin/applications/export", "applications_export", applications_list.export,
          GET, ADMIN, needs=permissions.APPLICATIONS, limited=permissions.APPLICATIONS),
    Route("{base}/admin/application", "application", applications.application, GET, ADMIN,
          needs=permissions.APPLICATIONS, limited=permissions.APPLICATIONS),
    Route("{base}/admin/application/secret-end", "application_limit", applications.limit,
          blueprint=ADMIN, needs=permissions.APPLICATIONS, limited=permissions.APPLICATIONS),
    Route("{base}/admin/application/act", "application_act", applications.act, blueprint=ADMIN,
          needs=permissions.APPLICATIONS, limited=permissions.APPLICATIONS),
    Route("{base}/admin/application/secret", "application_rotate", applications.rotate,
          blueprint=ADMIN, needs=permissions.APPLICATIONS, limited=permissions.APPLICATIONS),
    Route("{base}/admin/application/logo", "application_logo", applications.logo, blueprint=ADMIN,
          needs=permissions.APPLICATIONS, limited=permissions.APPLICATIONS),
    Route("{base}/admin/application/new", "application_new", applications.new, GET, ADMIN,
          needs=permissions.APPLICATIONS),
    Route("{base}/admin/application/by-hand", "application_by_hand", applications.by_hand,
          blueprint=ADMIN, needs=permissions.APPLICATIONS),
    Route("{base}/admin/application/preset", "application_preset", applications.from_preset,
          blueprint=ADMIN, needs=permissions.APPLICATIONS),
    Route("{base}/admin/application/edit", "application_edit", applications.edit, blueprint=ADMIN,
          needs=permissions.APPLICATIONS, limited=permissions.APPLICATIONS),
    Route("{base}/admin/application/setup", "application_setup", applications.setup, GET, ADMIN,
          needs=permissions.APPLICATIONS, limited=permissions.APPLICATIONS),
    Route("{base}/admin/application/preview", "application_preview", troubleshooting.preview, GET,
          ADMIN, needs=permissions.APPLICATIONS, limited=permissions.APPLICATIONS),
    Route("{base}/admin/application/provisioning", "provisioning", provisioning.people, GET,
          ADMIN, needs=permissions.APPLICATIONS, limited=permissions.APPLICATIONS),
    Route("{base}/admin/application/provisioning/deliveries", "provisioning_deliveries",
          provisioning.deliveries, GET, ADMIN, needs=permissions.APPLICATIONS,
          limited=permissions.APPLICATIONS),
    Route("{base}/admin/application/provisioning/test", "provisioning_test", provisioning.test,
          blueprint=ADMIN, flooding=limiting.TEST_WEBHOOK, needs=permissions.APPLICATIONS,
          limited=permissions.APPLICATIONS),
    Route("{base}/admin/application/provisioning/token", "provisioning_token", provisioning.token,
          blueprint=ADMIN, needs=permissions.APPLICATIONS, limited=permissions.APPLICATIONS),
    Route("{base}/admin/application/provisioning/retry", "provisioning_retry", provisioning.retry,
          blueprint=ADMIN, needs=permissions.APPLICATIONS, limited=permissions.APPLICATIONS),
    Route("{base}/admin/apis", "apis", admin_apis.registered, GET, ADMIN,
          needs=permissions.APPLICATIONS),
    Route("{base}/admin/apis/export", "apis_export", admin_apis.export, GET, ADMIN,
          needs=permissions.APPLICATIONS),
    Route("{base}/admin/api", "api", admin_apis.api, GET, ADMIN, needs=permissions.APPLICATIONS),
    Route("{base}/admin/api/new", "api_new", admin_apis.new, blueprint=ADMIN,
          needs=permissions.APPLICATIONS),
    Route("{base}/admin/api/edit", "api_edit", admin_apis.edit, blueprint=ADMIN,
          needs=permissions.APPLICATIONS),
    Route("{base}/admin/api/secret", "api_rotate", admin_apis.rotate, blueprint=ADMIN,
          needs=permissions.APPLICATIONS),
    Route("{base}/admin/api/act", "api_act", admin_apis.act, blueprint=ADMIN,
          needs=permissions.APPLICATIONS),
    Route("{base}/admin/mcp-servers", "mcp_servers", mcp.registered, blueprint=ADMIN,
          needs=permissions.APPLICATIONS),
    Route("{base}/admin/mcp-servers/export", "mcp_servers_export", mcp.export, GET, ADMIN,
          needs=permissions.APPLICATIONS),
    Route("{base}/admin/mcp-servers/domains/export", "mcp_domains_export", mcp.export_domains,
          GET, ADMIN, needs=permissions.APPLICATIONS),
    Route("{base}/admin/mcp-server", "mcp_server", mcp.mcp_server, blueprint=ADMIN,
          flooding=limiting.TEST_SIGN_IN, needs=permissions.APPLICATIONS),
    Route("{base}/admin/mcp-server/new", "mcp_server_new", mcp.new, blueprint=ADMIN,
          needs=permissions.APPLICATIONS),
    Route("{base}/admin/mcp-servers/domain", "mcp_domain", mcp.decide, blueprint=ADMIN,
          needs=permissions.APPLICATIONS),
    Route("{base}/admin/refusals", "refusals", troubleshooting.refused, GET, ADMIN,
          needs=permissions.APPLICATIONS, limited=permissions.APPLICATIONS),
    Route("{base}/admin/refusals/export", "refusals_export", troubleshooting.export_refusals, GET,
          ADMIN, needs=permissions.APPLICATIONS, limited=permissions.APPLICATIONS),
    Route("{base}/admin/person/act", "person_act", people.act, blueprint=ADMIN,
          needs=permissions.CHANGE_PEOPLE, limited=permissions.CHANGE_PEOPLE),
    Route("{base}/admin/person/invite", "invite", people.invite, blueprint=ADMIN,
          needs=permissions.CHANGE_PEOPLE, limited=permissions.WRITE_PEOPLE),
    Route("{base}/admin/person/unlink", "person_unlink", people.unlink, blueprint=ADMIN,
          needs=permissions.WRITE_PEOPLE, limited=permissions.WRITE_PEOPLE),
    Route("{base}/admin/person/edit", "edit_person", people.edit, blueprint=ADMIN,
          needs=permissions.WRITE_PEOPLE, limited=permissions.WRITE_PEOPLE),
    Route("{base}/admin/person/attributes", "person_attributes", attributes.of_person,
          blueprint=ADMIN, needs=permissions.CHANGE_PEOPLE, limited=permissions.CHANGE_PEOPLE),
    Route("{base}/admin/attributes", "attributes", attributes.defined, GET, ADMIN,
          needs=permissions.ATTRIBUTES),
    Route("{base}/admin/attribute/new", "attribute_new", attributes.new, blueprint=ADMIN,
          needs=permissions.ATTRIBUTES),
    Route("{base}/admin/attribute", "attribute", attributes.attribute, blueprint=ADMIN,
          needs=permissions.ATTRIBUTES),
    Route("{base}/admin/attribute/delete", "attribute_delete", attributes.delete, blueprint=ADMIN,
          needs=permissions.ATTRIBUTES),
    Route("{base}/admin/sessions", "sessions", session_list.sessions, blueprint=ADMIN,
          needs=permissions.WRITE_PEOPLE, limited=permissions.WRITE_PEOPLE),
    Route("{base}/admin/sessions/export", "sessions_export", session_list.export, GET, ADMIN,
          needs=permissions.WRITE_PEOPLE, limited=permissions.WRITE_PEOPLE),
    Route("{base}/admin/groups", "groups", groups.groups, blueprint=ADMIN,
          needs=permissions.MEMBERS, limited=permissions.GROUPS),
    Route("{base}/admin/groups/export", "groups_export", groups.export, GET, ADMIN,
          needs=permissions.GROUPS),
    Route("{base}/admin/group", "group", groups.group, blueprint=ADMIN, needs=permissions.MEMBERS,
          flooding=limiting.OWNER_ADDITION, limited=permissions.GROUPS),
    Route("{base}/admin/group/rename", "group_rename", groups.rename, blueprint=ADMIN,
          needs=permissions.GROUPS),
    Route("{base}/admin/group/member", "group_member", groups.member, blueprint=ADMIN,
          needs=permissions.WRITE_PEOPLE, limited=permissions.WRITE_PEOPLE),
    Route("{base}/admin/group/remove", "group_remove", groups.remove_member, blueprint=ADMIN,
          needs=permissions.MEMBERS, limited=permissions.GROUPS),
    Route("{base}/admin/group/owners", "group_owners", groups.owners, blueprint=ADMIN,
          needs=permissions.GROUPS),
    Route("{base}/admin/group/owner/remove", "group_owner_remove", groups.remove_owner,
          blueprint=ADMIN, needs=permissions.GROUPS),
    Route("{base}/admin/group/delete", "group_delete", groups.delete, blueprint=ADMIN,
          needs=permissions.GROUPS),
    Route("{base}/admin/api-tokens", "tokens", admin_keys.tokens, blueprint=ADMIN,
          needs=permissions.API_TOKENS),
    Route("{base}/admin/api-tokens/export", "tokens_export", admin_keys.export_tokens, GET, ADMIN,
          needs=permissions.API_TOKENS),
    Route("{base}/admin/api-token/new", "token_new", admin_keys.new_token, blueprint=ADMIN,
          needs=permissions.API_TOKENS),
    Route("{base}/admin/api-token/revoke", "token_revoke", admin_keys.revoke_token,
          blueprint=ADMIN, needs=permissions.API_TOKENS),
    Route("{base}/admin/settings", "settings", server_pages.settings, GET, ADMIN,
          needs=permissions.SERVER),
    Route("{base}/admin/appearance", "appearance", appearance.appearance, blueprint=ADMIN,
          needs=permissions.BRANDING),
    Route("{base}/admin/appearance/preview", "appearance_preview", appearance.preview,
          blueprint=ADMIN, needs=permissions.BRANDING),
    Route("{base}/admin/providers", "providers", server_pages.providers, blueprint=ADMIN,
          flooding=limiting.TEST_SIGN_IN, needs=permissions.SERVER),
    Route("{base}/admin/provider", "provider", server_pages.provider, blueprint=ADMIN,
          flooding=limiting.TEST_SIGN_IN, needs=permissions.SERVER),
    Route("{base}/admin/webhooks", "webhooks", webhooks.registered, blueprint=ADMIN,
          needs=permissions.WEBHOOKS),
    Route("{base}/admin/webhooks/export", "webhooks_export", webhooks.export_list, GET, ADMIN,
          needs=permissions.WEBHOOKS),
    Route("{base}/admin/webhook", "webhook", webhooks.webhook, blueprint=ADMIN,
          needs=permissions.WEBHOOKS),
    Route("{base}/admin/webhook/export", "webhook_export", webhooks.export, GET, ADMIN,
          needs=permissions.WEBHOOKS),
    Route("{base}/admin/webhook/new", "webhook_new", webhooks.new, blueprint=ADMIN,
          needs=permissions.WEBHOOKS),
    Route("{base}/admin/webhook/edit", "webhook_edit", webhooks.edit, blueprint=ADMIN,
          needs=permissions.WEBHOOKS),
    Route("{base}/admin/webhook/test", "webhook_test", webhooks.test, blueprint=ADMIN,
          flooding=limiting.TEST_WEBHOOK, needs=permissions.WEBHOOKS),
    Route("{base}/admin/webhook/act", "webhook_act", webhooks.act, blueprint=ADMIN,
          needs=permissions.WEBHOOKS),
    Route("{base}/admin/webhook/retry", "webhook_retry", webhooks.retry, blueprint=ADMIN,
          needs=permissions.WEBHOOKS),
    Route("{base}/admin/emails", "emails", mail_queue.emails, blueprint=ADMIN,
          needs=permissions.MAIL),
    Route("{base}/admin/emails/export", "emails_export", mail_queue.export, GET, ADMIN,
          needs=permissions.MAIL),
    Route("{base}/admin/emails/failed", "emails_failed", mail_queue.resend_failed,
          blueprint=ADMIN, needs=permissions.MAIL),
    Route("{base}/admin/email/act", "email_act", mail_queue.act, blueprint=ADMIN,
          needs=permissions.MAIL),
    Route("{base}/admin/audit", "audit", audit_trail.audit_trail, GET, ADMIN,
          needs=permissions.AUDIT, limited=permissions.AUDIT),
    Route("{base}/admin/audit/event", "audit_event", audit_trail.event, GET, ADMIN,
          needs=permissions.AUDIT, limited=permissions.AUDIT),
    Route("{base}/admin/audit/chain", "audit_chain", audit_trail.verify, GET, ADMIN,
          needs=permissions.AUDIT),
    Route("{base}/admin/audit/export", "audit_export", audit_trail.export, GET, ADMIN,
          needs=permissions.AUDIT, limited=permissions.AUDIT),
    Route("{base}/admin/keys", "keys", admin_keys.keys, GET, ADMIN, needs=permissions.KEYS),
    Route("{base}/admin/keys/rotate", "keys_rotate", admin_keys.rotate, blueprint=ADMIN,
          needs=permissions.KEYS),
    Route("{base}/admin/keys/retire", "keys_retire", admin_keys.retire, blueprint=ADMIN,
          needs=permissions.KEYS),
)
# fmt: on


def init_app(app: Flask) -> None:
    """Register every route."""
    settings: Settings = app.extensions["sso.settings"]
    aliases = old_addresses.routes(settings, ROUTES) if settings.issuer_aliases else ()
    routing.register(app, (*ROUTES, *aliases))
    access.init_app(app)
    page.init_app(app)
    app.jinja_env.globals["signed_path"] = language.here
