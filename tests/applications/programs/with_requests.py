"""Signs in by requests-oauth2client with pushed requests and DPoP.

Prints where to send the browser, reads where it came back to, and prints what it got.
"""

# ruff: noqa: T201

import json
from os import environ

from requests_oauth2client import OAuth2Client  # type: ignore[import-not-found]

client = OAuth2Client.from_discovery_endpoint(
    issuer=environ["ISSUER"],
    client_id=environ["CLIENT_ID"],
    client_secret=environ["CLIENT_SECRET"],
    redirect_uri=environ["REDIRECT_URI"],
    dpop_bound_access_tokens=True,
    dpop_alg=environ["ALG"],
    testing=True,
)
request = client.authorization_request(scope="openid profile email offline_access", dpop=True)
print(client.pushed_authorization_request(request).uri, flush=True)

# Its check of the identity token loses the key (1.8.0).
first = client.authorization_code(request.validate_callback(input()), validate=False)
profile = client.userinfo(first)
second = client.refresh_token(first)
client.userinfo(second)
described = client.introspect_token(second)
print(json.dumps({
    "types": [first.token_type, second.token_type],
    "profile": profile,
    "described": described.as_dict() if hasattr(described, "as_dict") else described,
}))  # fmt: skip
