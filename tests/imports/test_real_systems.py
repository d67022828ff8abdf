"""Passwords that Django and Better Auth themselves have hashed."""

import json
import sysconfig
from pathlib import Path

import pytest

from sso.crypto import foreign_hashes
from sso.imports.reading import read
from tests.applications.software import node, node_program, python, run

pytestmark = pytest.mark.slow

PASSWORD = "Grüße aus Köln ①"
HASHERS = {
    "PBKDF2PasswordHasher": "pbkdf2-sha256", "PBKDF2SHA1PasswordHasher": "pbkdf2-sha1",
    "Argon2PasswordHasher": "argon2id", "BCryptSHA256PasswordHasher": "bcrypt-sha256",
    "BCryptPasswordHasher": "bcrypt", "ScryptPasswordHasher": "scrypt",
}  # fmt: skip
SITE = """
import sys
import django
from django.conf import settings
from django.core.management import call_command
from django.test.utils import override_settings

names, password = sys.argv[1].split(), sys.argv[2]
hashers = ["django.contrib.auth.hashers." + name for name in names]
settings.configure(
    INSTALLED_APPS=["django.contrib.auth", "django.contrib.contenttypes"],
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}},
    PASSWORD_HASHERS=hashers,
)
django.setup()
call_command("migrate", verbosity=0)
from django.contrib.auth.models import Group, User
staff = Group.objects.create(name="staff")
for name, hasher in zip(names, hashers):
    with override_settings(PASSWORD_HASHERS=[hasher]):
        user = User.objects.create_user(name, name + "@example.com", password, first_name=name)
        user.groups.add(staff)
User.objects.create_user("none", "none@example.com")
call_command("dumpdata", "auth.user", "auth.group")
"""


def test_django(tmp_path: Path) -> None:
    ours = sysconfig.get_path("purelib")  # argon2 and bcrypt are not Django's own
    program = python("django") / "bin/python"
    printed = run(program, "-c", SITE, " ".join(HASHERS), PASSWORD, PYTHONPATH=ours)
    file = tmp_path / "users.json"
    file.write_text(printed)
    *people, without = read("django", file, source="django", roles=False, report=None)
    assert (without.email, without.password_hash) == ("none@example.com", None)
    for (name, scheme), person in zip(HASHERS.items(), people, strict=True):
        assert (person.name, person.groups, person.refused) == (name, ["staff"], None)
        assert person.password_hash is not None, person.password_problem
        assert person.password_hash.startswith(f"${scheme}$")
        assert foreign_hashes.verify(PASSWORD, person.password_hash)
        assert not foreign_hashes.verify("wrong", person.password_hash)


def test_better_auth(tmp_path: Path) -> None:
    program = tmp_path / "hash.mjs"
    package = node("better-auth") / "node_modules/better-auth/dist/crypto/index.mjs"
    program.write_text(
        f"import {{ hashPassword }} from {json.dumps(package.as_uri())};\n"
        "console.log(await hashPassword(process.argv[2]));\n"
    )
    stored = run(node_program(), program, PASSWORD).strip()
    file = tmp_path / "tables.json"
    user = {"id": "1", "name": "Erin", "email": "erin@example.com", "emailVerified": True}
    account = {"userId": "1", "providerId": "credential", "password": stored}
    file.write_text(json.dumps({"user": [user], "account": [account]}))
    (person,) = read("better-auth", file, source="better-auth", roles=False, report=None)
    assert person.password_hash is not None
    assert foreign_hashes.verify(PASSWORD, person.password_hash)
    assert foreign_hashes.verify("Grüße aus Köln 1", person.password_hash)  # as it normalizes
    assert not foreign_hashes.verify("wrong", person.password_hash)
