"""A service provider with python3-saml. IDP: the file with the identity provider's metadata."""

import os
from pathlib import Path
from typing import Any

from flask import Flask, Response, redirect, request, session
from onelogin.saml2.auth import OneLogin_Saml2_Auth  # type: ignore[import-not-found]
from onelogin.saml2.constants import OneLogin_Saml2_Constants as Names  # type: ignore[import-not-found]
from onelogin.saml2.idp_metadata_parser import OneLogin_Saml2_IdPMetadataParser  # type: ignore[import-not-found]
from onelogin.saml2.settings import OneLogin_Saml2_Settings  # type: ignore[import-not-found]

HERE = f"http://127.0.0.1:{os.environ['PORT']}"
SETTINGS = {
    **OneLogin_Saml2_IdPMetadataParser.parse(Path(os.environ["IDP"]).read_text()),
    "strict": True,
    "security": {
        "authnRequestsSigned": True,
        "logoutRequestSigned": True,
        "logoutResponseSigned": True,
        "wantAssertionsSigned": True,
        "wantMessagesSigned": True,
        "requestedAuthnContext": False,
        "rejectDeprecatedAlgorithm": True,
        "signatureAlgorithm": Names.RSA_SHA256,
    },
}
SETTINGS["sp"] = {
    "entityId": f"{HERE}/metadata",
    "assertionConsumerService": {"url": f"{HERE}/acs", "binding": Names.BINDING_HTTP_POST},
    "singleLogoutService": {"url": f"{HERE}/sls", "binding": Names.BINDING_HTTP_REDIRECT},
    "x509cert": Path("sp.pem").read_text(),
    "privateKey": Path("sp.key").read_text(),
}
app = Flask(__name__)
app.secret_key = os.urandom(16)
app.config["SESSION_COOKIE_NAME"] = "saml-flask"


def saml() -> OneLogin_Saml2_Auth:
    return OneLogin_Saml2_Auth(
        {
            "https": "off",
            "http_host": request.host,
            "script_name": request.path,
            "get_data": request.args.copy(),
            "post_data": request.form.copy(),
            "query_string": request.query_string.decode(),
        },
        SETTINGS,
    )


@app.get("/")
def home() -> Any:
    if "user" in session:
        return session["user"]
    auth = saml()
    url = auth.login(return_to=f"{HERE}/")
    session["request"] = auth.get_last_request_id()
    return redirect(url)


@app.post("/acs")
def acs() -> Any:
    auth = saml()
    auth.process_response(request_id=session.get("request"))
    if auth.get_errors():
        return f"refused: {auth.get_last_error_reason()}", 403
    session["user"] = {"name_id": auth.get_nameid(), "attributes": auth.get_attributes()}
    session["index"], session["format"] = auth.get_session_index(), auth.get_nameid_format()
    return redirect(f"{HERE}/")


@app.get("/logout")
def logout() -> Any:
    return redirect(
        saml().logout(
            name_id=session["user"]["name_id"],
            session_index=session["index"],
            name_id_format=session["format"],
            return_to=f"{HERE}/out",
        )
    )


@app.get("/sls")
def sls() -> Any:
    auth = saml()
    url = auth.process_slo(delete_session_cb=session.clear)
    if auth.get_errors():
        return f"refused: {auth.get_last_error_reason()}", 403
    return redirect(url or f"{HERE}/out")


@app.get("/out")
def out() -> str:
    return "you are out"


@app.get("/metadata")
def metadata() -> Response:
    return Response(OneLogin_Saml2_Settings(SETTINGS).get_sp_metadata(), mimetype="text/xml")


app.run(port=int(os.environ["PORT"]))
