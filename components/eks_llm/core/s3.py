"""S3 buckets and prefixes as a stack file writes them. Weights are granted in aws/ and fetched in serving/ by these."""

import re

PREFIX_LIMIT = 768
"""Longest prefix, characters: the key of an object has at most 1,024 bytes (S3 user guide), and files have names."""
RESERVED = r"(xn--|sthree-|amzn-s3-demo-).*|.*(-s3alias|--ol-s3|\.mrap|--x-s3|--table-s3)"


def bucket_problem(name: str) -> str | None:
    """Why S3 has no bucket of this name; None if it may. Source: S3 user guide, general purpose bucket naming rules."""
    if not re.fullmatch(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]", name) or ".." in name:
        return "a bucket name has 3 to 63 lower-case letters, digits, '.' and '-' (S3 user guide)"
    if re.fullmatch(r"\d+\.\d+\.\d+\.\d+", name):
        return "a bucket name does not look like an IP address (S3 user guide)"
    if re.fullmatch(RESERVED, name):
        return "S3 keeps names with this beginning or ending for itself (S3 user guide)"
    return None


def uri_problem(uri: str, bucket: str | None = None) -> str | None:
    """Why `uri` is not a prefix that a role may be given, in `bucket` if that is said; None if it is."""
    match = re.fullmatch(r"s3://([^/]+)/(.*)", uri)
    if not match or bucket_problem(match[1]):
        return f"not an S3 prefix such as s3://{bucket or 'acme-models'}/llama-3-8b/2026-10-01/"
    if bucket is not None and match[1] != bucket:
        return f"not in bucket {bucket}"
    return _prefix_problem(match[2])


def _prefix_problem(prefix: str) -> str | None:
    if not prefix:
        return "the whole bucket; give each service a prefix of its own"
    if not prefix.endswith("/"):
        return "does not end with '/', so a prefix of the same beginning could be read too"
    # `*` and `?` are wildcards of IAM, and `${` begins one of its variables.
    if not re.fullmatch(r"([A-Za-z0-9!_.'()=+@-]+/)+", prefix) or {".", ".."} & set(prefix.split("/")):
        return "has a part that is empty, '.' or '..', or other characters than letters, digits and !_.'()=+@-"
    if len(prefix) > PREFIX_LIMIT:
        return f"a prefix of {len(prefix)} characters; at most {PREFIX_LIMIT} leave room for file names"
    return None
