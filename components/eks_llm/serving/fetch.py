"""Model weights on the node: an init container copies them from S3 to the NVMe array, once per node."""

import hashlib
from typing import Any

import pulumi

from ..catalog.images import IMAGES
from ..core.placement import NODE_FOLDER

# The kernel drops the lock when its holder dies, so a pod killed half-way blocks nobody, and the next one resumes. The
# mark lies beside the folder, since other containers mount the folder alone, and read-only. It lists what was copied.
SCRIPT = r"""
REMOTE=":s3,provider=AWS,env_auth=true,region=${AWS_REGION:-}:${SOURCE#s3://}"
MARK="$TARGET.complete"

listing() {
  rclone lsf "$REMOTE" --recursive --files-only --format ps --separator ';' | LC_ALL=C sort
}

whole() {
  [ -s "$MARK" ] && while IFS= read -r line; do
    [ "$(stat -c %s "$TARGET/${line%;*}" 2>/dev/null)" = "${line##*;}" ] || return 1
  done < "$MARK"
}

names_missing() {
  echo "$1" | sed 's/;[0-9]*$//' | awk '
    $0 == "config.json" { config = 1 }
    /\.(safetensors|bin|pt|pth|gguf)$/ { weights = 1 }
    match($0, /-[0-9]+-of-[0-9]+\./) {
      split(substr($0, RSTART, RLENGTH), part, "-")
      files = substr($0, 1, RSTART) "*-of-" part[4] substr($0, RSTART + RLENGTH)
      have[files]++
      want[files] = part[4] + 0
    }
    END {
      if (!config) print "config.json"
      if (!weights) print "weights (*.safetensors)"
      for (files in want)
        if (have[files] < want[files]) print want[files] - have[files] " of " want[files] " files " files
    }'
}

shards_missing() {
  for index in "$TARGET"/*.index.json; do
    [ -e "$index" ] || continue
    grep -o '"[^"]*\.\(safetensors\|bin\)"' "$index" | tr -d '"' | sort -u | while IFS= read -r shard; do
      [ -e "$TARGET/$shard" ] || echo "$shard, which $(basename "$index") names"
    done
  done
}

refuse() {
  [ -n "$1" ] || return 0
  echo "$SOURCE lacks $(echo "$1" | LC_ALL=C sort | awk '{ printf "%s%s", and, $0; and = " and " }'). If an upload is" \
    "under way, this container finds it when it is complete; if not, upload the model folder there, or correct the" \
    "service's weights." >&2
  exit 1
}

mkdir -p "$FOLDER/models" "$CACHE"
chown "$OWNER" "$CACHE"
exec 9>"$TARGET.lock"
flock 9
if whole; then
  echo "$SOURCE is on this node already"
  exit 0
fi
if [ -z "${AWS_CONTAINER_CREDENTIALS_FULL_URI:-}" ]; then
  echo "No Pod Identity credentials: they are given when a pod is created, and EKS did not know yet that this pod's" \
    "ServiceAccount may read $SOURCE. Delete this pod, and the next one gets them. If not: aws eks" \
    "list-pod-identity-associations, and the add-on eks-pod-identity-agent." >&2
  exit 1
fi
rm -f "$MARK"
before=$(listing)
refuse "$(names_missing "$before")"
rclone sync "$REMOTE" "$TARGET" \
  --transfers 8 --multi-thread-streams 8 --retries 5 --stats 30s --stats-one-line --stats-log-level NOTICE
after=$(listing)
if [ "$before" != "$after" ]; then
  echo "$SOURCE has changed while it was copied: an upload is under way. This container tries again." >&2
  exit 1
fi
refuse "$(shards_missing)"
echo "$after" > "$MARK.part"
sync
mv "$MARK.part" "$MARK"
""".strip()


def weights_path(uri: str) -> str:
    """Folder of an S3 prefix on a node. A prefix never changes its content here: new weights need a new prefix."""
    return f"{NODE_FOLDER}/models/{hashlib.sha256(uri.encode()).hexdigest()[:16]}"


def cache_path(namespace: str, service: str) -> str:
    """Folder for what the engine compiles; it survives pods, so only the first start on a node compiles."""
    return f"{NODE_FOLDER}/cache/{namespace}-{service}"


def init_container(uri: str, region: pulumi.Input[str] | None, cache: str, owner: str) -> dict[str, Any]:
    """Copies `uri` to the node, and makes the folder `cache` writable for `owner` (`uid:gid`).

    It runs as root without capabilities but CHOWN, since kubelet and runtime make host folders root's. EKS Pod Identity
    adds the credentials when a pod is created, and AWS_REGION where it is not set. Its associations are eventually
    consistent, so a pod may miss them however it is ordered; a restart of the container does not help, a new pod does.
    """
    return {
        "name": "weights",
        "image": IMAGES["weights"].reference,
        "command": ["/bin/sh", "-ceu", SCRIPT],
        "env": [
            {"name": "FOLDER", "value": NODE_FOLDER},
            {"name": "SOURCE", "value": uri},
            {"name": "TARGET", "value": weights_path(uri)},
            {"name": "CACHE", "value": cache},
            {"name": "OWNER", "value": owner},
            *([{"name": "AWS_REGION", "value": region}] if region is not None else []),
        ],
        # No CPU limit: the copy may use what the engine, which starts afterwards, has asked for.
        "resources": {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"memory": "4Gi"}},
        "volumeMounts": [{"name": "nvme", "mountPath": NODE_FOLDER}],
        "securityContext": {
            "runAsUser": 0,
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"], "add": ["CHOWN"]},
        },
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }
