"""Databases of better-auth, as its version 1.7 has them, cut down to what is looked at.

What is encrypted was encrypted by better-auth itself.
"""

import base64
import hashlib
import json
from pathlib import Path
from typing import Any

from tests.support import foreign_databases

AUTH_SECRET, NEW_AUTH_SECRET = (
    "aaaabbbbccccddddeeeeffffgggghhhh11223344",
    "new-secret-new-secret-new-secret-22",
)
DANA = "5aIfsYEiq4kb75LXfg2CBE4WnonT17Y0"
CLIENT_SECRET = "FeIulCwTbcqWCneFoZFPfPcRHPAqOIvW"
ENCRYPTED_CLIENT_SECRET = (
    "d77235d2f9cc27db8dcc585aee7c98215eee5e5b76b3d54cfc148d2e790dc85232bb66dde24472b0db71eaed1eeb"
    "fdc0a079b6b9604d9882c496f76329338891fd5a902b2106951d"
)
TOTP = b"ZXCUgs3Wv8rWY0ZnpExhE5eMlqJBzIE7"
ENCRYPTED_TOTP = (
    "bb1640833d095da792207224033b934eddc2c5160c9ec93f7e703937f4a3fac481698020c87e299b57bfa6b47ef5"
    "2325258186c3bc545976cb62482ced495059d85f477158770107"
)
VERSIONED_TOTP = (  # by the new secret
    "$ba$2$b3a562de42e647157abfcf162c3ef04445f0bb4212c55bdad6a30e860b9cb4e83bc0297367161ca4eba009"
    "521b5722aacaf6d5ebf2f9b88b013b997913b7d8dec36717971a51232a"
)
BASE32_TOTP = (  # of JBSWY3DPEHPK3PXPJBSWY3DPEHPK3PXP, which came from elsewhere
    "1ed9f83882cd25523d1b92858337d66dcb9e9f02b0e9806cd98529411b7badf43b2e038fca07fccbe0dafbb33678"
    "bcdaba6947dbfaaf8ecfc128782c9e39f63c5e21a69456e55e840fe434ce511d99"
)
SHORT_TOTP = (
    "6b083dbe1fc8cb93810879842618b024bb491a179a6717393af72db09f164ef5a33138c50ea5bbbee9ffed"
)
BACKUP_CODES = ["X6O60-bIaCk", "89lg2-9P7zj"]
ENCRYPTED_CODES = (
    "2f8464b19335b476e70e2d180237b9b834a5634f19201654063752b2aa6573cd61b55c3e1c8722bf41626d01bdb2"
    "96666a125c8658604ecdf9c9fcdec3446c52f86a88c029"
)
PASSWORD = "correct horse 1"
TABLES = {
    "user": "id TEXT, name TEXT, email TEXT, emailVerified INTEGER, image TEXT, role TEXT, "
            "banned INTEGER, banExpires date, username TEXT, twoFactorEnabled INTEGER, "
            "isAnonymous INTEGER, phoneNumber TEXT, phoneNumberVerified INTEGER",
    "account": "accountId TEXT, providerId TEXT, userId TEXT, password TEXT",
    "twoFactor": "secret TEXT, backupCodes TEXT, userId TEXT, verified INTEGER",
    "passkey": "name TEXT, publicKey TEXT, userId TEXT, credentialID TEXT, counter INTEGER, "
               "transports TEXT",
    "oauthClient": "clientId TEXT, clientSecret TEXT, clientDiscoveryId TEXT, disabled INTEGER, "
                   "skipConsent INTEGER, subjectType TEXT, scopes TEXT, name TEXT, uri TEXT, "
                   "icon TEXT, redirectUris TEXT, postLogoutRedirectUris TEXT, "
                   "backchannelLogoutUri TEXT, tokenEndpointAuthMethod TEXT, jwks TEXT, "
                   "jwksUri TEXT, grantTypes TEXT, requirePKCE INTEGER, "
                   "dpopBoundAccessTokens INTEGER, referenceId TEXT, metadata TEXT",
    "oauthApplication": "clientId TEXT, clientSecret TEXT, redirectURLs TEXT, type TEXT, "
                        "disabled INTEGER, name TEXT, icon TEXT, metadata TEXT",
    "oauthConsent": "clientId TEXT, userId TEXT, scopes TEXT, consentGiven INTEGER",
    "jwks": "id TEXT, alg TEXT, createdAt date",
    "organization": "id TEXT, name TEXT",
}  # fmt: skip


def user(login: str, user_id: str = "", **more: Any) -> dict[str, Any]:
    return {"id": user_id or login * 4, "name": f"{login.capitalize()} van Doe",
            "email": f"{login}@example.com", "emailVerified": 1, **more}  # fmt: skip


def account(user_id: str, password: str = PASSWORD) -> dict[str, Any]:
    salt = "0464a0d9a3462c44d5450dfeeb4a0d01"
    key = hashlib.scrypt(
        password.encode(), salt=salt.encode(), n=2**14, r=16, p=1, dklen=64, maxmem=2**26
    )
    return {"userId": user_id, "accountId": user_id, "providerId": "credential",
            "password": f"{salt}:{key.hex()}"}  # fmt: skip


def hashed(secret: str) -> str:
    digest = hashlib.sha256(secret.encode()).digest()
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()


def client(client_id: str, *uris: str, **more: Any) -> dict[str, Any]:
    listed = [*uris] or [f"https://{client_id}.example.com/cb"]
    return {"clientId": client_id, "name": f"The {client_id}",
            "clientSecret": hashed(CLIENT_SECRET), "disabled": 0, "skipConsent": 1,
            "redirectUris": json.dumps(listed), "requirePKCE": 0,
            "tokenEndpointAuthMethod": "client_secret_basic",
            "grantTypes": '["authorization_code"]', **more}  # fmt: skip


def application(client_id: str, secret: str = CLIENT_SECRET, **more: Any) -> dict[str, Any]:
    """A client of the older OIDC provider."""
    return {"clientId": client_id, "name": f"The {client_id}", "clientSecret": secret,
            "redirectURLs": f"https://{client_id}.example.com/cb,https://{client_id}.example.com/2",
            "type": "web", "disabled": 0, **more}  # fmt: skip


def write(path: Path, without: tuple[str, ...] = (), /, **rows: list[dict[str, Any]]) -> Path:
    """Write a database with these rows of tables; `without`: tables, or columns as TABLE.NAME."""
    return foreign_databases.write(path, TABLES, rows, without)
