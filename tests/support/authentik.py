"""Files of authentik, by the models of its versions 2023.8 to 2026.2, cut down."""

import json
from pathlib import Path
from typing import Any

INSTALL_ID = "6282f10e-ff93-4ff1-8d2b-456d084cd411"
STAFF, TEAM, OTHERS = "aaaa0001", "aaaa0002", "aaaa0003"
FLOW = "bbbb0001"
SECRET = "k" * 128
PROFILE, EMAIL, OFFLINE = "cccc0001", "cccc0002", "cccc0003"
PASSWORD = "old password 1"
# As Django makes it, with 1,000 iterations.
PASSWORD_HASH = "pbkdf2_sha256$1000$saltsaltsalt$W+KW0K3jkEJNBdGEDHms+u+rmHsFfJhjf41/EmYinAs="


def user(pk: int, name: str, /, **more: Any) -> dict[str, Any]:
    return {"pk": pk, "username": name, "name": f"{name.capitalize()} Doe", "is_active": True,
            "email": f"{name}@example.com", "groups": [], "attributes": {}, "uid": f"{pk:064x}",
            "uuid": f"3f1d2c4e-1111-4000-8000-{pk:012}", "type": "internal",
            "is_superuser": False, **more}  # fmt: skip


def group(pk: str, name: str, **more: Any) -> dict[str, Any]:
    return {"pk": pk, "name": name, "is_superuser": False, "parent": None, **more}


def provider(pk: int, client_id: str, *uris: str, **more: Any) -> dict[str, Any]:
    listed = [*uris] or [f"https://{client_id}.example.com/cb"]
    return {"pk": pk, "name": f"Provider of {client_id}", "client_id": client_id,
            "client_secret": SECRET, "client_type": "confidential", "signing_key": "dddd0001",
            "sub_mode": "hashed_user_id", "issuer_mode": "per_provider",
            "include_claims_in_id_token": True, "authorization_flow": FLOW,
            "property_mappings": [PROFILE, EMAIL, OFFLINE],
            "redirect_uris": [{"matching_mode": "strict", "url": uri} for uri in listed],
            **more}  # fmt: skip


def application(slug: str, of: Any, **more: Any) -> dict[str, Any]:
    return {"pk": f"eeee{slug}", "slug": slug, "name": f"The {slug}", "provider": of,
            "meta_launch_url": "", "policy_engine_mode": "any", **more}  # fmt: skip


def binding(slug: str, **more: Any) -> dict[str, Any]:
    return {"target": f"eeee{slug}", "order": 0, "policy": None, "group": None, "user": None,
            "enabled": True, "negate": False, **more}  # fmt: skip


def mappings() -> list[dict[str, Any]]:
    prefix = "goauthentik.io/providers/oauth2/scope-"
    return [
        {"pk": key, "name": name, "scope_name": name, "managed": prefix + name, "expression": "…"}
        for key, name in ((PROFILE, "profile"), (EMAIL, "email"), (OFFLINE, "offline_access"))
    ]


def flow(slug: str) -> dict[str, Any]:
    return {"pk": FLOW, "slug": slug, "designation": "authorization"}


IMPLICIT = flow("default-provider-authorization-implicit-consent")


def page(path: Path, *objects: dict[str, Any]) -> Path:
    """Write a page of the API; for these tests, of several kinds at once."""
    path.write_text(json.dumps({"pagination": {"count": len(objects)}, "results": objects}))
    return path


def tables(path: Path, **rows: Any) -> Path:
    """Write rows of tables as the query of the guide does."""
    path.write_text(json.dumps({f"authentik_{name}": listed for name, listed in rows.items()}))
    return path
