#!/bin/sh
# Gives each named node GPUs that do not exist: gpus.sh NODE...   GPUS (2) is how many, RESOURCE (example.com/gpu) which.
# The kubelet keeps what it does not know in a node's capacity and takes it into what is allocatable.
set -eu
[ $# -gt 0 ] || { echo "usage: $0 NODE..." >&2; exit 2; }
count=${GPUS:-2}
resource=${RESOURCE:-example.com/gpu}
key=$(printf %s "$resource" | sed 's|~|~0|g; s|/|~1|g')
for node in "$@"; do
  kubectl patch node "$node" --subresource=status --type=json --patch "[
    {\"op\": \"add\", \"path\": \"/status/capacity/$key\", \"value\": \"$count\"},
    {\"op\": \"add\", \"path\": \"/status/allocatable/$key\", \"value\": \"$count\"}]"
done
