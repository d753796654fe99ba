"""What runs in the AWS account: network, cluster, GPU node pools, model weights."""
