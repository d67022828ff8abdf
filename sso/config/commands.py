"""All commands: the first line of each help, and the function to load (see `command_line`)."""

from collections.abc import Mapping

# By group: the group's summary, and by command its summary and its function.
GROUPS: Mapping[str, tuple[str, Mapping[str, tuple[str, str]]]] = {
    "api": ("APIs that access tokens are for.", {
        "create": ("Register an API; the secret for introspection is shown once.",
                   "sso.cli.apis:create"),
        "list": ("List all APIs, oldest first.", "sso.cli.apis:list_"),
        "show": ("Show an API, and the applications that are registered for it.",
                 "sso.cli.apis:show"),
        "update": ("Change an API, and print what changed.", "sso.cli.apis:update"),
        "rotate-secret": ("Give an API a new secret for introspection, shown once; the old one "
                          "ends.",
                          "sso.cli.apis:rotate_secret"),
        "disable": ("Disable an API: nobody gets tokens for it, and introspection refuses those "
                    "there are.",
                    "sso.cli.apis:disable"),
        "enable": ("Enable an API again.", "sso.cli.apis:enable"),
        "delete": ("Delete an API, and what applications are registered for at it.",
                   "sso.cli.apis:delete"),
    }),
    "api-token": ("Tokens of programs that administer the server.", {
        "create": ("Create an API token; it is shown once.", "sso.cli.api_tokens:create"),
        "list": ("List all API tokens.", "sso.cli.api_tokens:list_"),
        "revoke": ("Revoke an API token; it stops at once.", "sso.cli.api_tokens:revoke"),
    }),
    "audit": ("Security events.", {
        "list": ("List security events, newest first.", "sso.cli.audit:list_"),
        "verify": ("Check that no event was changed, removed or moved.", "sso.cli.audit:verify"),
    }),
    "client": ("Applications that users sign in to.", {
        "create": ("Register an application; its secret is shown once.",
                   "sso.cli.connect:create"),
        "presets": ("List the known applications, or show one.", "sso.cli.connect:presets"),
        "setup": ("Print the configuration of an application that was registered from a preset.",
                  "sso.cli.connect:setup"),
        "list": ("List all applications.", "sso.cli.clients:list_"),
        "show": ("Show an application's registration and its newest grants.",
                 "sso.cli.clients:show"),
        "preview": ("Show what an application would learn about a user who signs in now, and why "
                    "not more.",
                    "sso.cli.preview:preview"),
        "update": ("Change a registration, and print what changed.", "sso.cli.clients:update"),
        "rotate-secret": ("Give an application a new secret, shown once.",
                          "sso.cli.clients:rotate_secret"),
        "disable": ("Disable an application; its tokens end at once.", "sso.cli.clients:disable"),
        "enable": ("Enable an application again; ended tokens stay ended.",
                   "sso.cli.clients:enable"),
        "delete": ("Delete an application with its tokens and consents.", "sso.cli.clients:delete"),
    }),
    "group": ("Groups of users.", {
        "list": ("List all groups, their members, and the applications that require them.",
                 "sso.cli.groups:list_"),
        "create": ("Create a group without members.", "sso.cli.groups:create"),
        "rename": ("Rename a group, for its members and the applications that require it.",
                   "sso.cli.groups:rename"),
        "delete": ("Delete a group; its members lose it at once.", "sso.cli.groups:delete"),
    }),
    "key": ("Signing keys: next, active, retired.", {
        "list": ("List all signing keys, oldest first.", "sso.cli.keys:list_"),
        "rotate": ("Make the next keys active, and publish new next keys.", "sso.cli.keys:rotate"),
        "retire": ("Replace a next key before it is used, or remove a retired key from the key "
                   "set.",
                   "sso.cli.keys:retire"),
        "reencrypt": ("Encrypt stored secrets with SSO_SECRET_KEY instead of "
                      "SSO_SECRET_KEY_PREVIOUS.",
                      "sso.cli.keys:reencrypt"),
    }),
    "user": ("Users, their sessions and second factors.", {
        "create": ("Create a user; asks for the password.", "sso.cli.users:create"),
        "list": ("List users, oldest first.", "sso.cli.people:list_"),
        "show": ("Show a user.", "sso.cli.people:show"),
        "update": ("Change a user, and print what changed; an empty claim is removed.",
                   "sso.cli.users:update"),
        "invite": ("Create a user, and mail a link to set the password.", "sso.cli.users:invite"),
        "import": ("Import users with their passwords from FILE.", "sso.cli.imports:import_"),
        "set-password": ("Set a user's password; all sessions and tokens end.",
                         "sso.cli.users:set_password"),
        "disable": ("Disable a user; all their sessions, tokens and API tokens end at once.",
                    "sso.cli.users:disable"),
        "enable": ("Enable a user again; ended sessions stay ended.", "sso.cli.users:enable"),
        "delete": ("Delete a user with sessions, tokens, consents and API tokens.",
                   "sso.cli.users:delete"),
        "sessions": ("List the browsers in which a user is signed in.",
                     "sso.cli.users:list_sessions"),
        "sign-out": ("Sign a user out everywhere; tokens with offline_access stay valid.",
                     "sso.cli.users:sign_out"),
        "factors": ("List a user's second factors.", "sso.cli.users:list_factors"),
        "reset-factors": ("Remove all second factors of a user, and end all sessions.",
                          "sso.cli.users:reset_factors"),
        "identities": ("List the accounts at identity providers that sign a user in.",
                       "sso.cli.users:list_identities"),
        "unlink": ("Remove an account at an identity provider; its sessions end.",
                   "sso.cli.users:unlink"),
        "enrolment-link": ("Create a link that allows a user without mail to add the first "
                           "second factor.",
                           "sso.cli.users:enrolment_link"),
    }),
    "webhook": ("URLs that are notified of events.", {
        "create": ("Register a webhook; its secret is shown once.", "sso.cli.webhooks:create"),
        "list": ("List all webhooks.", "sso.cli.webhooks:list_"),
        "update": ("Change a webhook, and print what changed.", "sso.cli.webhooks:update"),
        "test": ("Send a test event to a webhook, and print the answer.", "sso.cli.webhooks:test"),
        "deliveries": ("List the newest deliveries of a webhook.", "sso.cli.webhooks:deliveries"),
        "disable": ("Stop sending to a webhook; waiting deliveries are dropped.",
                    "sso.cli.webhooks:disable"),
        "enable": ("Send to a webhook again, from now on.", "sso.cli.webhooks:enable"),
        "delete": ("Delete a webhook and its deliveries.", "sso.cli.webhooks:delete"),
    }),
}  # fmt: skip

COMMANDS: Mapping[str, tuple[str, str]] = {
    "apply": ("Change APIs, clients, users and groups to match FILE, all or nothing.",
              "sso.cli.apply:apply_command"),
    "backup": ("Back everything up to FILE, an SQLite database, while the service runs.",
               "sso.cli.database:backup_command"),
    "db": ("Perform database migrations.", "sso.cli.database:group"),
    "explain": ("Say why a request was refused, by the id on its error page or in the log; without "
                "ID, list what was refused last.", "sso.cli.explain:explain_command"),
    "export": ("Write APIs, clients, users and groups to FILE (TOML, mode 0600), or print them.",
               "sso.cli.apply:export_command"),
    "purge": ("Delete expired rows while the service runs.", "sso.cli.worker:purge_command"),
    "restore": ("Restore a backup into an empty database, with the same SSO_SECRET_KEY.",
                "sso.cli.database:restore_command"),
    "worker": ("Run the background work: mail, logout tokens, purging, key rotation.",
               "sso.cli.worker:worker_command"),
}  # fmt: skip
