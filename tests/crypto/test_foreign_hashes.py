"""Passwords from other systems: checked by their own rules, within bounds, at one cost."""

import base64
import hashlib
import time
from collections.abc import Callable
from typing import Any

import argon2
import bcrypt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sso.crypto import foreign_hashes, passwords
from sso.crypto.foreign_hashes import Refused

PASSWORD = "Grüße 1"
TYPED = PASSWORD.encode()
SALT = b"sixteen bytes..!"


def b64(raw: bytes) -> str:
    return base64.b64encode(raw).decode()


def phc(raw: bytes) -> str:
    return b64(raw).rstrip("=")


def pbkdf2(digest: str, salt: bytes = SALT, rounds: int = 3, length: int | None = None) -> bytes:
    return hashlib.pbkdf2_hmac(digest, TYPED, salt, rounds, length)


def scrypt(salt: bytes, block: int, lanes: int, cost: int = 1 << 14, typed: bytes = TYPED) -> bytes:
    return hashlib.scrypt(typed, salt=salt, n=cost, r=block, p=lanes, dklen=64, maxmem=1 << 27)


def keycloak(algorithm: str, value: bytes, rounds: int = 3, **more: list[str]) -> str | None:
    return foreign_hashes.from_keycloak(
        {"value": b64(value), "salt": b64(SALT), "additionalParameters": {}},
        {"hashIterations": rounds, "algorithm": algorithm, "additionalParameters": more},
    )


def argon2_hash(kind: argon2.Type, version: int = 19, length: int = 32) -> str:
    made = argon2.low_level.hash_secret(TYPED, SALT, 2, 64, 1, length, kind, version)
    return made.decode()


def raw_argon2(kind: argon2.Type) -> bytes:
    return argon2.low_level.hash_secret_raw(TYPED, SALT, 2, 64, 1, 32, kind)


BCRYPT = bcrypt.hashpw(TYPED, b"$2b$04$" + b"a" * 21 + b"u").decode()
OVER_SHA256 = bcrypt.hashpw(hashlib.sha256(TYPED).hexdigest().encode(), BCRYPT[:29].encode())
SCRYPT = {"salt": {"value": SALT.hex(), "encoding": "hex"}, "cost": 1024, "blockSize": 8}

GOOD: dict[str, Callable[[], str | None]] = {
    **{
        f"argon2 {kind.name} {version}": lambda kind=kind, version=version: (  # type: ignore[misc]
            foreign_hashes.from_text(argon2_hash(kind, version))
        )
        for kind in argon2.Type
        for version in (16, 19)
    },
    "argon2 without a version": lambda: foreign_hashes.from_text(
        argon2_hash(argon2.Type.ID, 16).replace("$v=16", "")
    ),
    **{
        f"bcrypt {kind}": lambda kind=kind: foreign_hashes.from_text(  # type: ignore[misc]
            BCRYPT.replace("2b", kind, 1)
        )
        for kind in ("2a", "2b", "2y")
    },
    "Django PBKDF2-SHA256": lambda: foreign_hashes.from_text(
        f"pbkdf2_sha256$3$abc${b64(pbkdf2('sha256', b'abc'))}"
    ),
    "Django PBKDF2-SHA1": lambda: foreign_hashes.from_text(
        f"pbkdf2_sha1$3$abc${b64(pbkdf2('sha1', b'abc'))}"
    ),
    "Django argon2": lambda: foreign_hashes.from_text("argon2" + argon2_hash(argon2.Type.ID)),
    "Django bcrypt": lambda: foreign_hashes.from_text("bcrypt$" + BCRYPT),
    "Django bcrypt_sha256": lambda: foreign_hashes.from_text(
        "bcrypt_sha256$" + OVER_SHA256.decode()
    ),
    "Django scrypt": lambda: foreign_hashes.from_text(
        f"scrypt$1024$abc$8$5${b64(scrypt(b'abc', 8, 5, 1024))}"
    ),
    "Better Auth": lambda: foreign_hashes.from_better_auth(
        f"{SALT.hex()}:{scrypt(SALT.hex().encode(), 16, 1).hex()}"
    ),
    "passlib": lambda: foreign_hashes.from_text(
        f"$pbkdf2-sha256$3${phc(SALT)}${phc(pbkdf2('sha256')).replace('+', '.')}"
    ),
    # Keycloak derives 512 bits whatever the digest.
    "Keycloak pbkdf2": lambda: keycloak("pbkdf2", pbkdf2("sha1", length=64)),
    "Keycloak pbkdf2-sha256": lambda: keycloak("pbkdf2-sha256", pbkdf2("sha256", length=64)),
    "Keycloak pbkdf2-sha512": lambda: keycloak("pbkdf2-sha512", pbkdf2("sha512", length=64)),
    "Keycloak argon2": lambda: keycloak(
        "argon2", raw_argon2(argon2.Type.ID), rounds=2, hash=["32"], memory=["64"], type=["id"],
        version=["1.3"], parallelism=["1"],
    ),
    "Auth0 bcrypt": lambda: foreign_hashes.from_auth0(
        {"algorithm": "bcrypt", "hash": {"value": BCRYPT.replace("2b", "2a", 1)}}
    ),
    "Auth0 argon2": lambda: foreign_hashes.from_auth0(
        {"algorithm": "argon2", "hash": {"value": argon2_hash(argon2.Type.I), "encoding": "utf8"}}
    ),
    "Auth0 pbkdf2": lambda: foreign_hashes.from_auth0({
        "algorithm": "pbkdf2",
        "hash": {"value": f"$pbkdf2-sha512$i=3,l=64${phc(SALT)}${phc(pbkdf2('sha512'))}"},
    }),
    "Auth0 scrypt": lambda: foreign_hashes.from_auth0(SCRYPT | {
        "algorithm": "scrypt", "parallelization": 1,
        "hash": {"value": scrypt(SALT, 8, 1, 1024).hex(), "encoding": "hex"},
    }),
}  # fmt: skip


@pytest.mark.parametrize("system", GOOD)
def test_each_system(system: str) -> None:
    stored = GOOD[system]()
    assert stored is not None
    assert foreign_hashes.verify(PASSWORD, stored)
    assert not foreign_hashes.verify(PASSWORD + "x", stored)
    assert len(stored) <= foreign_hashes.MOST
    assert foreign_hashes.from_text(stored) == stored  # as `apply` takes it
    assert passwords.needs_rehash(stored)


def test_published_vectors() -> None:
    """RFC 6070, RFC 7914 §12 and crypt_blowfish: not made by the libraries that check them."""
    sha1 = bytes.fromhex("4b007901b765489abead49d926f721d065a429c1")
    assert foreign_hashes.verify("password", f"$pbkdf2-sha1$i=4096${phc(b'salt')}${phc(sha1)}")
    key = bytes.fromhex(
        "7023bdcb3afd7348461c06cd81fd38ebfda8fbba904f8e3ea9b543f6545da1f2"
        "d5432955613f0fcf62d49705242a9af9e61e85dc0d651e40dfcf017b45575887"
    )
    stored = f"$scrypt$ln=14,r=8,p=1${phc(b'SodiumChloride')}${phc(key)}"
    assert foreign_hashes.verify("pleaseletmein", stored)
    known = "$2a$05$CCCCCCCCCCCCCCCCCCCCC.E5YPO9kmyuRGyh0XouQYb4YMJKvyOeW"
    assert foreign_hashes.verify("U*U", str(foreign_hashes.from_text(known)))


def test_better_auth_normalizes_what_is_typed() -> None:
    key = scrypt(SALT, 8, 1, 1024, typed=b"file 1")
    stored = f"$scrypt-nfkc$ln=10,r=8,p=1${phc(SALT)}${phc(key)}"
    assert foreign_hashes.verify("ﬁle ①", stored)
    assert not foreign_hashes.verify("ﬁle ①", stored.replace("-nfkc", ""))


def test_bcrypt_reads_72_bytes() -> None:
    long = "a" * 71 + "ü"  # the 72nd byte is half a letter
    stored = str(
        foreign_hashes.from_text(bcrypt.hashpw(long.encode()[:72], b"$2b$04$" + b"." * 22).decode())
    )
    assert foreign_hashes.verify(long, stored)
    assert foreign_hashes.verify(long + " and more", stored)  # as everywhere that has bcrypt
    assert not foreign_hashes.verify("a" * 71, stored)


def test_no_nul_ends_or_extends_a_password() -> None:
    """HMAC fills its key with NULs, and C ends its texts with one."""
    key = hashlib.pbkdf2_hmac("sha1", b"pass", b"x", 3)
    assert key == hashlib.pbkdf2_hmac("sha1", b"pass\0", b"x", 3)
    for text in (
        f"pbkdf2_sha1$3$x${b64(key)}",
        bcrypt.hashpw(b"pass", b"$2b$04$" + b"." * 22).decode(),
    ):
        stored = str(foreign_hashes.from_text(text))
        assert foreign_hashes.verify("pass", stored)
        assert not foreign_hashes.verify("pass\0", stored)
        assert not foreign_hashes.verify("pass\0word", stored)


@pytest.mark.parametrize("typed", ["one-two", "one--two", "onetwo", "one", "one two"])
@pytest.mark.parametrize("with_nul", ["one\0two", "one\0\0two", "one\0", "\0one-two"])
def test_a_nul_stands_for_nothing_else(typed: str, with_nul: str) -> None:
    key = hashlib.pbkdf2_hmac("sha256", typed.encode(), b"x" * 8, 3)
    for text in (
        f"pbkdf2_sha256$3$xxxxxxxx${b64(key)}",
        bcrypt.hashpw(typed.encode(), b"$2b$04$" + b"." * 22).decode(),
    ):
        stored = str(foreign_hashes.from_text(text))
        assert foreign_hashes.verify(typed, stored)
        assert not foreign_hashes.verify(with_nul, stored)


def test_accounts_without_a_password() -> None:
    assert foreign_hashes.from_text("") is None
    assert foreign_hashes.from_text("!QAZvhsd87fmA0sdf") is None  # Django's unusable password
    assert foreign_hashes.from_better_auth("") is None


SECRET = "5f4dcc3b5aa765d61d8327deb882cf99"
UNSUPPORTED = [
    *(SECRET, f"md5$abc${SECRET}", f"sha1$abc${SECRET}", f"$1$abc${SECRET}", f"$6$abc${SECRET}"),
    *(f"{{SSHA}}{SECRET}", f"$P$B{SECRET}", f"{SECRET}:{SECRET}", "plain text", f"crypt$${SECRET}"),
    *(f"deadbeefsalt:{SECRET}", BCRYPT.replace("2b", "2x", 1), "$2b$04$short", "pbkdf2_sha256$1$2"),
    *(f"pbkdf2_sha256$x$abc${SECRET}", "scrypt$3$abc$8$1$" + b64(bytes(64)), "$" * 900, "x" * 5000),
    *("$argon2id$v=19$m=64,t=2,p=1$AAAAAAAAAAA$", "$argon2id$", "\0", "\udcff"),
    "$2b$04$" + "\u0661" * 53,
    "$pbkdf2-sha256$i=٣$AAAAAAAAAAA$" + "A" * 43,
]  # fmt: skip


def test_others_are_refused_without_a_part_of_them() -> None:
    for text in UNSUPPORTED:
        with pytest.raises(Refused) as refused:
            foreign_hashes.from_text(text)
        assert SECRET not in str(refused.value)
        assert "deadbeef" not in str(refused.value)
    for algorithm in ("md5", "sha256", "hmac", "ldap", None, 7, "x" * 5000):
        with pytest.raises(Refused) as refused:
            foreign_hashes.from_auth0({"algorithm": algorithm, "hash": {"value": SECRET}})
        assert len(str(refused.value)) < 150


ODD: list[Any] = [None, [], {}, "", "x", True, -1, 10**400, 1.5, {"value": []}, ["x"], "A" * 10_000]


def test_odd_credentials_are_refused() -> None:
    for odd in ODD:
        for name in ("value", "salt"):
            with pytest.raises(Refused):
                foreign_hashes.from_keycloak(
                    {"value": b64(bytes(32)), "salt": b64(SALT)} | {name: odd},
                    {"algorithm": "pbkdf2-sha256", "hashIterations": 3},
                )
        for name in ("algorithm", "hashIterations", "additionalParameters"):
            wrong = {"algorithm": "argon2", "hashIterations": 3} | {name: odd or "x"}
            with pytest.raises(Refused):
                foreign_hashes.from_keycloak(
                    {"value": b64(bytes(32)), "salt": b64(bytes(4))}, wrong
                )
        for name in ("hash", "salt", "cost", "algorithm"):
            with pytest.raises(Refused):
                foreign_hashes.from_auth0(
                    SCRYPT | {"algorithm": "scrypt", "hash": {"value": "00"}} | {name: odd}
                )


BOMBS = [
    "$argon2id$v=19$m=4194304,t=1,p=1$" + phc(SALT) + "$" + phc(bytes(32)),
    "$argon2id$v=19$m=65536,t=999999,p=1$" + phc(SALT) + "$" + phc(bytes(32)),
    "$argon2id$v=19$m=131072,t=1,p=999$" + phc(SALT) + "$" + phc(bytes(32)),
    "$argon2id$v=19$m=64,t=1,p=1,m=4194304$" + phc(SALT) + "$" + phc(bytes(32)),
    "$argon2id$v=19$m=64,t=1,p=1$" + phc(SALT) + "$" + phc(bytes(100_000)),
    BCRYPT.replace("$04$", "$31$"), "bcrypt$" + BCRYPT.replace("$04$", "$15$"),
    f"pbkdf2_sha256$2000001$abc${b64(bytes(32))}",
    f"pbkdf2_sha256$999999999999$abc${b64(bytes(32))}",
    f"scrypt$1073741824$abc$8$1${b64(bytes(64))}", f"scrypt$16384$abc$8$999${b64(bytes(64))}",
    f"scrypt$2$abc$99999999$1${b64(bytes(64))}", f"scrypt$16384$abc$32$16${b64(bytes(64))}",
    "$scrypt$ln=99,r=8,p=1$" + phc(SALT) + "$" + phc(bytes(64)),
    # No library computes these: a wrong password would be an error.
    *(f"$scrypt${n}${phc(SALT)}${phc(bytes(64))}"
      for n in ("ln=0,r=8,p=1", "ln=4,r=0,p=1", "ln=4,r=8,p=0")),
    *(f"$argon2id$v=19${n}${phc(SALT)}${phc(bytes(32))}"
      for n in ("m=64,t=0,p=1", "m=64,t=1,p=0", "m=7,t=1,p=1")),
    BCRYPT.replace("$04$", "$03$"), f"pbkdf2_sha256$0$abc${b64(bytes(32))}",
]  # fmt: skip


def test_what_is_too_long_is_not_parsed() -> None:
    """Everything that parses a hash afterwards may count on its length."""
    for start in ("$2b$12$", "$argon2id$", "pbkdf2_sha256$", "$scrypt$", "x"):
        with pytest.raises(Refused, match="longer than 1000 characters"):
            foreign_hashes.from_text(start + "x" * 1000)


def test_bombs_are_neither_stored_nor_checked() -> None:
    began = time.process_time()
    for bomb in BOMBS:
        with pytest.raises(Refused):
            foreign_hashes.from_text(bomb)
        assert not foreign_hashes.verify(PASSWORD, bomb)
    for rounds in (10**12, -1, 0, 2_000_001):
        with pytest.raises(Refused):
            keycloak("pbkdf2-sha256", bytes(64), rounds)
    with pytest.raises(Refused):
        keycloak("argon2", bytes(32), 5, memory=["4194304"])
    assert time.process_time() - began < 1
    began = time.process_time()
    assert not passwords.verify(PASSWORD, BOMBS[0])
    assert time.process_time() - began < 1


@given(st.one_of(
    st.text(max_size=80),
    st.text("$,=abcdefghijklmnoprstuvy0123456789-_", max_size=80).map("$argon2id$v=19$".__add__),
    st.text("$,=ilrp0123456789-abc./", max_size=80).map("$scrypt$ln=".__add__),
))  # fmt: skip
def test_any_text_gets_an_answer(text: str) -> None:
    try:
        stored = foreign_hashes.from_text(text)
    except Refused:
        return
    assert stored is None or foreign_hashes.from_text(stored) == stored


def test_what_is_accepted_can_be_checked() -> None:
    """No file leaves a hash behind that ends the sign-in of its user, or of all, in an error."""
    methods = [
        *(f"$scrypt$ln={ln},r={r},p=1" for ln in (1, 2, 15, 16, 17) for r in (1, 2)),
        *(
            f"$argon2{kind}$v={v}$m={m},t=1,p={p}"
            for kind in ("i", "d", "id", "x")
            for v in (16, 18, 19)
            for m, p in ((1, 1), (8, 1), (128, 16), (127, 16))
        ),
        *("$pbkdf2-sha1$i=1", "$pbkdf2-sha512$i=1"),
    ]
    stored = [f"{method}${phc(SALT)}${phc(bytes(32))}" for method in methods]
    stored += [f"$bcrypt$r=4${'a' * 21}{end}${'b' * 31}" for end in "./aOeuzZ09"]
    accepted = 0
    for one in stored:
        try:
            known = foreign_hashes.parse(one)
        except Refused:
            assert not foreign_hashes.verify("x", one)
            continue
        accepted += 1
        assert foreign_hashes._CHECKS[known.kind](known, "x") is False  # and raises nothing
        foreign_hashes.spend([known.method], None)
    assert 20 < accepted < len(stored) - 10


class Work:
    """Counts instead of working."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.done: dict[str, int] = {}
        monkeypatch.setattr(hashlib, "pbkdf2_hmac", self._pbkdf2)
        monkeypatch.setattr(hashlib, "scrypt", self._scrypt)
        monkeypatch.setattr(bcrypt, "checkpw", lambda _, stored: self._bcrypt(stored))
        monkeypatch.setattr(bcrypt, "hashpw", lambda _, stored: self._bcrypt(stored))
        monkeypatch.setattr(argon2.low_level, "verify_secret", self._argon2)

    def _add(self, what: str, cost: int) -> bool:
        self.done[what] = self.done.get(what, 0) + cost
        return False

    def verify(self, *_: Any) -> None:
        self._add("own", 1)
        raise argon2.exceptions.VerifyMismatchError

    def _pbkdf2(self, digest: str, *rest: Any) -> bytes:
        self._add(digest, rest[2])
        return b""

    def _scrypt(self, _: bytes, n: int, r: int, p: int, **__: Any) -> bytes:
        self._add(f"scrypt {n} {r} {p}", 1)
        return b""

    def _bcrypt(self, stored: bytes) -> bool:
        return self._add("bcrypt", 1 << int(stored[4:6]))

    def _argon2(self, stored: bytes, *_: Any) -> bool:
        return self._add(stored.decode().rpartition("$")[0].rpartition("$")[0], 1)


def test_a_wrong_password_is_as_much_work_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    own = passwords.hash_password("another password")
    end = f"${phc(SALT)}${phc(bytes(32))}"
    foreign = [
        *(f"$pbkdf2-sha256$i={rounds}{end}" for rounds in (1, 1000, 600_000)),
        *(f"$pbkdf2-sha512$i={rounds}{end}" for rounds in (27_500, 210_000)),
        *(f"$bcrypt$r={cost}${'.' * 22}${'a' * 31}" for cost in (4, 10, 12)),
        f"$bcrypt-sha256$r=11${'.' * 22}${'a' * 31}",
        f"$scrypt$ln=14,r=8,p=5{end}", f"$scrypt-nfkc$ln=14,r=16,p=1{end}",
        f"$argon2id$v=19$m=7168,t=5,p=1{end}", f"$argon2i$v=19$m=102400,t=2,p=8{end}",
    ]  # fmt: skip
    imported = {str(foreign_hashes.method_of(one)) for one in foreign}
    assert len(imported) == len(foreign)
    passwords._nobody()
    spent = []
    for stored in (None, own, *foreign):
        with monkeypatch.context() as patch:
            work = Work(patch)
            patch.setattr(passwords, "hasher", work)
            assert not passwords.verify("wrong", stored, None, imported)
        spent.append(work.done)
    assert spent[0] == {
        "own": 1, "sha256": 600_000, "sha512": 210_000, "bcrypt": 1 << 12,
        "scrypt 16384 8 5": 1, "scrypt 16384 16 1": 1,
        "$argon2id$v=19$m=7168,t=5,p=1": 1, "$argon2i$v=19$m=102400,t=2,p=8": 1,
    }  # fmt: skip
    assert all(one == spent[0] for one in spent)


@pytest.mark.slow
def test_a_wrong_password_takes_as_long_for_all() -> None:
    """In processor time, which other programs on the machine do not change much."""
    stored = str(foreign_hashes.from_text(bcrypt.hashpw(b"right", bcrypt.gensalt(9)).decode()))
    cheap = str(GOOD["Keycloak pbkdf2-sha256"]())
    imported = {str(foreign_hashes.method_of(one)) for one in (stored, cheap)}
    own = passwords.hash_password("another password")
    took: dict[str | None, list[float]] = {None: [], own: [], stored: [], cheap: []}
    for _ in range(9):
        for one, times in took.items():
            began = time.process_time()
            assert not passwords.verify("wrong", one, None, imported)
            times.append(time.process_time() - began)
    best = [min(times) for times in took.values()]
    assert max(best) < 1.25 * min(best), best
