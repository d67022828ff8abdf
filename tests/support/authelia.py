"""Files of Authelia, as versions 4.37 and 4.38 write them, cut down to what is looked at.

`TOTP` is a row that the real 4.37.5 wrote, with this storage key.
"""

import base64
import hashlib
import json
import sqlite3
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.ciphers.aead import AESGCM

PASSWORD = "old password 1"
PASSWORD_HASH = (
    "$argon2id$v=19$m=8192,t=1,p=1$+KsCrlBZZRfe3VcRkqohQQ"
    "$LlW6+huwtAEz7l0TehwFlBEPqrATC049JdfQMZEt1Nc"
)
SECRET = "insecure_secret_that_is_quite_long_0123456789"
SECRET_HASH = (
    "$pbkdf2-sha512$100000$wbRfVvrLeH59IYCa/8NRzw"
    "$pC387omqb7G4jC9biRnzMBcCM5V6u1/XlzuPuoL9qDnyEr.SMuMnWY8pceDZ49pRDX4Fp6zOasya2.DSqtvvnw"
)
STORAGE_KEY = "a_very_long_encryption_key_123"
TOTP_SECRET = "JBSWY3DPEHPK3PXPJBSWY3DPEHPK3PXP"
TOTP = bytes.fromhex(
    "56046e40cabad2ce24312769accc8490f4d7e18e2764f0cab700e5432bcfdae5bcf5fbb5910573da0a79b4625ec6"
    "49d2f31861869619023851150790"
)
SUBJECT = "b6d0b3a0-1f4e-4c52-9d32-40a2f8a3a111"
HANDLE = "h" * 64


def encrypted(clear: bytes) -> bytes:
    nonce = b"twelve bytes"
    key = hashlib.sha256(STORAGE_KEY.encode()).digest()
    return nonce + AESGCM(key).encrypt(nonce, clear, None)


def client(client_id: str, **more: Any) -> dict[str, Any]:
    usual = {
        "client_id": client_id, "client_name": f"The {client_id}", "client_secret": SECRET_HASH,
        "redirect_uris": [f"https://{client_id}.example.com/cb"],
        "authorization_policy": "one_factor",
    }  # fmt: skip
    return usual | more


def configuration(*clients: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"identity_providers": {"oidc": {"clients": [*clients], **more}},
            "storage": {"encryption_key": STORAGE_KEY}}  # fmt: skip


def user(name: str, **more: Any) -> dict[str, Any]:
    return {"displayname": name.capitalize(), "password": PASSWORD_HASH,
            "email": f"{name}@example.com", "groups": ["dev"], **more}  # fmt: skip


def write(path: Path, content: Any) -> Path:
    """Write YAML: JSON is some."""
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def database(path: Path, *, version: int = 15, key: dict[str, Any] | None = None) -> Path:
    """A database with Dana's subject, authenticator app, and `key` as the row of a passkey."""
    path.unlink(missing_ok=True)
    with sqlite3.connect(path) as file:
        file.executescript("""
            CREATE TABLE migrations (id INTEGER PRIMARY KEY, version_after INTEGER NOT NULL);
            CREATE TABLE user_opaque_identifier (service TEXT, sector_id TEXT, username TEXT,
                identifier CHAR(36));
            CREATE TABLE totp_configurations (username TEXT, algorithm TEXT, digits INTEGER,
                period INTEGER, secret BLOB);
            CREATE TABLE webauthn_users (rpid TEXT, username TEXT, userid TEXT);
            CREATE TABLE webauthn_credentials (rpid TEXT, username TEXT, description TEXT, kid TEXT,
                transport TEXT, sign_count INTEGER, public_key BLOB, legacy BOOLEAN);
            CREATE TABLE oauth2_consent_preconfiguration (client_id TEXT, subject CHAR(36),
                expires_at TIMESTAMP, revoked BOOLEAN, scopes TEXT);
        """)
        file.execute("INSERT INTO migrations (version_after) VALUES (?)", (version,))
        for sector, subject in (("", SUBJECT), ("https://x.example", "0" * 36)):
            file.execute("INSERT INTO user_opaque_identifier VALUES ('openid', ?, 'dana', ?)",
                         (sector, subject))  # fmt: skip
        file.execute("INSERT INTO totp_configurations VALUES ('dana', 'SHA1', 6, 30, ?)", (TOTP,))
        file.execute("INSERT INTO webauthn_users VALUES ('localhost', 'dana', ?)", (HANDLE,))
        for row in [key] if key else []:
            usual = {"rpid": "localhost", "username": "dana", "description": "My key",
                     "transport": "usb,nfc", "sign_count": 1, "legacy": 0}  # fmt: skip
            values = {**usual, **row, "public_key": encrypted(row["public_key"])}
            marks = ", ".join(f":{name}" for name in values)
            file.execute(f"INSERT INTO webauthn_credentials ({', '.join(values)}) VALUES ({marks})",
                         values)  # fmt: skip
        for client_id, ends, revoked in (
            ("wiki", "2099-01-01 00:00:00.904228113+00:00", 0), ("wiki", None, 1),
            ("blog", "2020-01-01 00:00:00+00:00", 0),
        ):  # fmt: skip
            file.execute("INSERT INTO oauth2_consent_preconfiguration VALUES (?, ?, ?, ?, ?)",
                         (client_id, SUBJECT, ends, revoked, "openid|email"))  # fmt: skip
    return path


def totp_export(username: str = "dana", secret: str = TOTP_SECRET) -> dict[str, Any]:
    encoded = base64.b64encode(secret.encode()).decode()
    return {"totp_configurations": [{"username": username, "algorithm": "SHA1", "digits": 6,
                                     "period": 30, "secret": encoded}]}  # fmt: skip
