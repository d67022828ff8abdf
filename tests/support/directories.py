"""Directories of people to sign in: OpenLDAP's slapd, and Samba as Active Directory."""

import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.listeners import certificate
from tests.support.processes import free_port, require
from tests.support.servers import Machine

BASE = "dc=example,dc=org"
PEOPLE, GROUPS = f"ou=people,{BASE}", f"ou=groups,{BASE}"
ADMIN, ADMIN_PASSWORD = f"cn=admin,{BASE}", "the service account's"
PASSWORD = "correct horse battery"

_CONFIGURATION = """
include /etc/ldap/schema/core.schema
include /etc/ldap/schema/cosine.schema
include /etc/ldap/schema/nis.schema
include /etc/ldap/schema/inetorgperson.schema
modulepath /usr/lib/ldap
moduleload back_mdb
moduleload memberof
moduleload ppolicy
pidfile {folder}/slapd.pid
TLSCertificateFile {certificate}
TLSCertificateKeyFile {certificate}
sizelimit unlimited
database mdb
suffix "{base}"
rootdn "{admin}"
rootpw "{password}"
directory "{folder}/data"
index objectClass,uid,mail,member,entryUUID eq
access to attrs=userPassword by anonymous auth by * none
access to * by * read
overlay memberof
overlay ppolicy
ppolicy_default "cn=policy,{base}"
"""
_FIRST = f"""
dn: {BASE}
objectClass: dcObject
objectClass: organization
o: Example

dn: cn=policy,{BASE}
objectClass: device
objectClass: pwdPolicy
pwdAttribute: userPassword
pwdMustChange: TRUE
pwdLockout: TRUE
pwdMaxFailure: 5

dn: {PEOPLE}
objectClass: organizationalUnit

dn: {GROUPS}
objectClass: organizationalUnit
"""


class OpenLdap(Machine):
    """slapd with StartTLS at `port` and TLS from the first byte at `tls_port`."""

    def __init__(self) -> None:
        super().__init__(Path(tempfile.mkdtemp(prefix="slapd-")))
        # Debian has it where only root's PATH looks.
        self.slapd = require("slapd", shutil.which("slapd", path="/usr/sbin:/usr/bin"))
        self.tls_port = free_port()
        self.certificate = certificate(self.folder, 30)
        (self.folder / "data").mkdir()

    def command(self) -> list[str]:
        values = {"base": BASE, "admin": ADMIN, "password": ADMIN_PASSWORD}
        file = self.folder / "slapd.conf"
        file.write_text(
            _CONFIGURATION.format(folder=self.folder, certificate=self.certificate, **values)
        )
        urls = f"ldap://127.0.0.1:{self.port}/ ldaps://127.0.0.1:{self.tls_port}/"
        return [self.slapd, "-d", "0", "-f", str(file), "-h", urls]

    def fill(self) -> None:
        """Make the units that `person` and `group` put entries into."""
        self.change(_FIRST, "-a")

    def change(self, ldif: str, *options: str) -> None:
        """Apply changes, or add entries with `-a`."""
        command = ["ldapmodify", "-x", "-H", f"ldap://127.0.0.1:{self.port}", *options]
        done = subprocess.run(
            [*command, "-D", ADMIN, "-w", ADMIN_PASSWORD],
            input=ldif.encode(), capture_output=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr.decode()

    def person(self, uid: str, *lines: str, mail: str = "") -> str:
        """Add a person with the usual password; returns the distinguished name."""
        dn = f"uid={uid},{PEOPLE}"
        self.change(
            "\n".join(
                [
                    f"dn: {dn}", "objectClass: inetOrgPerson", "objectClass: shadowAccount",
                    f"uid: {uid}", f"cn: {uid.title()}", "sn: Doe",
                    f"displayName: {uid.title()} Doe",
                    f"mail: {mail or uid + '@example.org'}", f"userPassword: {PASSWORD}", *lines,
                ]
            ),
            "-a",
        )  # fmt: skip
        return dn

    def group(self, name: str, *members: str) -> str:
        """Add a group with these members; returns the distinguished name."""
        dn = f"cn={name},{GROUPS}"
        lines = [f"dn: {dn}", "objectClass: groupOfNames", f"cn: {name}"]
        self.change("\n".join([*lines, *(f"member: {member}" for member in members)]), "-a")
        return dn

    def remove(self, dn: str) -> None:
        """Delete an entry."""
        self.change(f"dn: {dn}\nchangetype: delete\n")


@contextmanager
def slapd() -> Iterator[OpenLdap]:
    """A directory with nobody in it."""
    server = OpenLdap()
    server.start()
    server.fill()
    try:
        yield server
    finally:
        server.stop()
        shutil.rmtree(server.folder)


class Samba(Machine):
    """An Active Directory domain controller for example.test. LDAP has its usual ports."""

    base, password = "dc=example,dc=test", "Str0ng-enough!"

    def __init__(self) -> None:
        super().__init__(Path(tempfile.mkdtemp(prefix="samba-")))
        self.port = 389  # Samba knows no other
        self.samba = require("samba", shutil.which("samba", path="/usr/sbin:/usr/bin"))
        self.certificate = certificate(self.folder, 30)
        self.certificate.chmod(0o600)
        self.file = self.folder / "dc" / "etc" / "smb.conf"
        pem, options = self.certificate, []
        for name in ("log file", "pid directory", "ncalrpc dir", "winbindd socket directory"):
            options.append(f"{name}={self.folder}/{name.replace(' ', '-')}")
        options += [f"tls {kind}={pem}" for kind in ("cafile", "certfile", "keyfile")]
        options += ["interfaces=127.0.0.1/8", "bind interfaces only=yes", "server services=ldap"]
        self.run(
            "domain", "provision", "--realm=EXAMPLE.TEST", "--domain=EXAMPLE", "--host-name=dc",
            "--host-ip=127.0.0.1", "--server-role=dc", "--dns-backend=NONE",
            f"--adminpass={self.password}", f"--targetdir={self.folder}/dc",
            *(f"--option={option}" for option in options),
        )  # fmt: skip

    def command(self) -> list[str]:
        return [self.samba, "-i", "-M", "single", "-s", str(self.file)]

    def tool(self, *arguments: str) -> None:
        """Change the directory's database with samba-tool."""
        database = f"{self.folder}/dc/private/sam.ldb"
        self.run(*arguments, "-H", database, "-s", str(self.file))

    def run(self, *arguments: str) -> None:
        tool = require("samba-tool", shutil.which("samba-tool"))
        done = subprocess.run([tool, *arguments], capture_output=True, check=False, timeout=300)
        assert done.returncode == 0, done.stderr.decode()[-2000:]
