"""Certificates of the embedded control plane: one authority, made anew for each platform and valid for 30 days."""

import datetime
import ipaddress
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

VALID = datetime.timedelta(days=30)


@dataclass(frozen=True)
class Pair:
    """Files of a certificate and its private key."""

    certificate: Path
    key: Path


class Authority:
    """Signs certificates into a folder; its own is `ca.crt`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "eks-llm embedded platform")])
        usage = x509.KeyUsage(
            digital_signature=True, content_commitment=False, key_encipherment=False, data_encipherment=False,
            key_agreement=False, key_cert_sign=True, crl_sign=True, encipher_only=False, decipher_only=False,
        )  # fmt: skip
        builder = self._builder(self._name, self._key.public_key())
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        builder = builder.add_extension(usage, critical=True)
        identifier = x509.SubjectKeyIdentifier.from_public_key(self._key.public_key())
        certificate = builder.add_extension(identifier, critical=False).sign(self._key, hashes.SHA256())
        self.certificate = folder / "ca.crt"
        self.certificate.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))

    def client(self, name: str, user: str, groups: tuple[str, ...] = ()) -> Pair:
        """A client certificate; Kubernetes reads the user from the common name, the groups from the organisations."""
        subject = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
        subject.append(x509.NameAttribute(NameOID.COMMON_NAME, user))
        return self._issue(name, x509.Name(subject), [ExtendedKeyUsageOID.CLIENT_AUTH], [])

    def server(self, name: str, hosts: list[str]) -> Pair:
        """A server certificate for host names and addresses; etcd and KEDA use theirs as clients too."""
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        usages = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
        return self._issue(name, subject, usages, hosts)

    def signing_key(self, name: str) -> Pair:
        """A key pair without a certificate: service account tokens are signed with it. `certificate` is public key."""
        key = ec.generate_private_key(ec.SECP256R1())
        public = self.folder / f"{name}.pub"
        public.write_bytes(
            key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
        )
        return Pair(public, self._write_key(name, key))

    def _issue(self, name: str, subject: x509.Name, usages: list[x509.ObjectIdentifier], hosts: list[str]) -> Pair:
        key = ec.generate_private_key(ec.SECP256R1())
        builder = self._builder(subject, key.public_key())
        builder = builder.add_extension(x509.ExtendedKeyUsage(usages), critical=False)
        issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())  # Python 3.13 insists on it
        builder = builder.add_extension(issuer, critical=False)
        if hosts:
            builder = builder.add_extension(x509.SubjectAlternativeName([_alternative(host) for host in hosts]), False)
        certificate = builder.sign(self._key, hashes.SHA256())
        file = self.folder / f"{name}.crt"
        file.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        return Pair(file, self._write_key(name, key))

    def _builder(self, subject: x509.Name, public_key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
        now = datetime.datetime.now(datetime.UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(public_key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(minutes=5))
            .not_valid_after(now + VALID)
        )

    def _write_key(self, name: str, key: ec.EllipticCurvePrivateKey) -> Path:
        file = self.folder / f"{name}.key"
        file.touch(mode=0o600)
        file.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
        )
        return file


def _alternative(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)
