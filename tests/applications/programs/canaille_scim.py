"""Canaille with its SQL backend in the folder where it runs, and one token for its SCIM service."""

import datetime
import sys

from canaille import create_app
from canaille.app import models
from canaille.backends import Backend

port, token = int(sys.argv[1]), sys.argv[2]
app = create_app(
    {
        "SECRET_KEY": "a secret key for this test",
        "SERVER_NAME": f"127.0.0.1:{port}",
        "PREFERRED_URL_SCHEME": "http",
        "CANAILLE": {"DATABASE": "sql"},
        "CANAILLE_SQL": {"DATABASE_URI": "sqlite:///canaille.db"},
        "CANAILLE_OIDC": {},
        "CANAILLE_SCIM": {"ENABLE_SERVER": True},
    },
    env_file=None,
)
with app.app_context(), Backend.instance.session():
    client = models.Client(client_id="sso", client_name="sso", client_secret="secret")
    Backend.instance.save(client)
    fields = {"token_id": "1", "access_token": token, "client": client, "audience": [client]}
    fields |= {"issue_date": datetime.datetime.now(datetime.UTC), "lifetime": 86400}
    Backend.instance.save(models.Token(**fields, scope=["openid"]))
app.run("127.0.0.1", port, threaded=False)
