"""Model weights on the node: an init container copies them from S3 to the NVMe array, once per node."""

import hashlib
from pathlib import PurePosixPath
from typing import Any

import pulumi

from ..catalog.images import IMAGES
from ..core.placement import NVME_MOUNT

# The kernel drops the lock when its holder dies, so a pod killed half-way blocks nobody, and the next one resumes. The
# marker lies beside the folder: other containers mount the folder alone, and read-only.
SCRIPT = r"""
if [ ! -d "$NVME" ] || [ "$(stat -c %d "$NVME")" = "$(stat -c %d "$NVME/..")" ]; then
  echo "$NVME is not a mount, so the weights would fill the root disk. The node needs an instance-store array:" \
    "NodeConfig instance.localStorage.strategy RAID0, on an instance type with NVMe disks." >&2
  exit 1
fi
mkdir -p "$NVME/models" "$CACHE"
chown "$OWNER" "$CACHE"
exec 9>"$TARGET.lock"
flock 9
if [ -e "$TARGET.complete" ]; then
  echo "$SOURCE is on this node already"
  exit 0
fi
if [ -z "${AWS_CONTAINER_CREDENTIALS_FULL_URI:-}" ]; then
  echo "No Pod Identity credentials: they are given when a pod is created, and EKS did not know yet that this pod's" \
    "ServiceAccount may read $SOURCE. Delete this pod, and the next one gets them. If not: aws eks" \
    "list-pod-identity-associations, and the add-on eks-pod-identity-agent." >&2
  exit 1
fi
rclone copy ":s3,provider=AWS,env_auth=true,region=$AWS_REGION:${SOURCE#s3://}" "$TARGET" \
  --transfers 8 --multi-thread-streams 8 --retries 5 --stats 30s --stats-one-line --stats-log-level NOTICE
if [ ! -e "$TARGET/config.json" ]; then
  echo "$SOURCE holds no config.json: upload the model folder there, or correct the service's weights" >&2
  exit 1
fi
touch "$TARGET.complete"
""".strip()


def weights_path(uri: str) -> str:
    """Folder of an S3 prefix on a node. A prefix never changes its content here: new weights need a new prefix."""
    return f"{NVME_MOUNT}/models/{hashlib.sha256(uri.encode()).hexdigest()[:16]}"


def cache_path(namespace: str, service: str) -> str:
    """Folder for what the engine compiles; it survives pods, so only the first start on a node compiles."""
    return f"{NVME_MOUNT}/cache/{namespace}-{service}"


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
            {"name": "NVME", "value": NVME_MOUNT},
            {"name": "SOURCE", "value": uri},
            {"name": "TARGET", "value": weights_path(uri)},
            {"name": "CACHE", "value": cache},
            {"name": "OWNER", "value": owner},
            *([{"name": "AWS_REGION", "value": region}] if region is not None else []),
        ],
        # No CPU limit: the copy may use what the engine, which starts afterwards, has asked for.
        "resources": {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"memory": "4Gi"}},
        # The parent folder, so that the script can see whether the array is mounted below it.
        "volumeMounts": [{"name": "nvme", "mountPath": str(PurePosixPath(NVME_MOUNT).parent)}],
        "securityContext": {
            "runAsUser": 0,
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"], "add": ["CHOWN"]},
        },
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }
