"""A service provider with pysaml2. IDP: the file with the identity provider's metadata."""

import os
from typing import Any

from flask import Flask, Response, redirect, request, session
from saml2 import BINDING_HTTP_POST, BINDING_HTTP_REDIRECT  # type: ignore[import-not-found]
from saml2.client import Saml2Client  # type: ignore[import-not-found]
from saml2.config import Config  # type: ignore[import-not-found]
from saml2.metadata import entity_descriptor  # type: ignore[import-not-found]
from saml2.saml import NAMEID_FORMAT_PERSISTENT, name_id_from_string  # type: ignore[import-not-found]
from saml2.xmldsig import DIGEST_SHA256, SIG_RSA_SHA256  # type: ignore[import-not-found]

HERE = f"http://127.0.0.1:{os.environ['PORT']}"
CONFIG = Config().load(
    {
        "entityid": f"{HERE}/metadata",
        "metadata": {"local": [os.environ["IDP"]]},
        "key_file": "sp.key",
        "cert_file": "sp.pem",
        "allow_unknown_attributes": True,
        "signing_algorithm": SIG_RSA_SHA256,
        "digest_algorithm": DIGEST_SHA256,
        "service": {
            "sp": {
                "endpoints": {
                    "assertion_consumer_service": [(f"{HERE}/acs", BINDING_HTTP_POST)],
                    "single_logout_service": [(f"{HERE}/sls", BINDING_HTTP_REDIRECT)],
                },
                "name_id_format": [NAMEID_FORMAT_PERSISTENT],
                "authn_requests_signed": True,
                "logout_requests_signed": True,
                "logout_responses_signed": True,
                "want_response_signed": True,
                "want_assertions_signed": True,
            }
        },
    }
)
CLIENT = Saml2Client(CONFIG)
app = Flask(__name__)
app.secret_key = os.urandom(16)
app.config["SESSION_COOKIE_NAME"] = "saml-pysaml2"
waiting: dict[str, str] = {}  # requests by ID


@app.get("/")
def home() -> Any:
    if "user" in session:
        return session["user"]
    identifier, info = CLIENT.prepare_for_authenticate()
    waiting[identifier] = "/"
    return redirect(dict(info["headers"])["Location"])


@app.post("/acs")
def acs() -> Any:
    try:
        answer = CLIENT.parse_authn_request_response(
            request.form["SAMLResponse"], BINDING_HTTP_POST, outstanding=waiting
        )
    except Exception as error:  # pysaml2 has no common class
        return f"refused: {error!r}", 403
    if answer is None:
        return "refused", 403
    name_id = answer.get_subject()
    session["user"] = {"name_id": name_id.text, "attributes": answer.ava}
    session["name_id"] = str(name_id)
    return redirect(f"{HERE}/")


@app.get("/logout")
def logout() -> Any:
    [(_, info)] = CLIENT.global_logout(name_id_from_string(session["name_id"])).values()
    return redirect(dict(info["headers"])["Location"])


@app.get("/sls")
def sls() -> Any:
    values = request.args
    if "SAMLResponse" in values:
        CLIENT.parse_logout_request_response(values["SAMLResponse"], BINDING_HTTP_REDIRECT)
        session.clear()
        return redirect(f"{HERE}/out")
    info = CLIENT.handle_logout_request(
        values["SAMLRequest"],
        name_id_from_string(session["name_id"]),
        BINDING_HTTP_REDIRECT,
        relay_state=values.get("RelayState", ""),
        sigalg=values["SigAlg"],
        signature=values["Signature"],
    )
    session.clear()
    return redirect(dict(info["headers"])["Location"])


@app.get("/out")
def out() -> str:
    return "you are out"


@app.get("/metadata")
def metadata() -> Response:
    return Response(str(entity_descriptor(CONFIG)), mimetype="text/xml")


app.run(port=int(os.environ["PORT"]))
