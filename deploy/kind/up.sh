#!/bin/sh
# A cluster in Docker with Muster in it, and the story of one gang. Again: what is there is kept and brought up to date.
# Needs docker, kind, kubectl and helm. `kind delete cluster --name muster` takes everything away.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
top=$(cd "$here/../.." && pwd)
name=${CLUSTER:-muster}

for tool in docker kind kubectl helm; do
  command -v "$tool" >/dev/null || { echo "error: $tool is needed and not on the PATH" >&2; exit 1; }
done
docker info >/dev/null 2>&1 || { echo "error: no Docker engine answers; start it" >&2; exit 1; }

say() { printf '\n== %s\n' "$*"; }

if kind get clusters 2>/dev/null | grep -qx "$name"; then
  say "the cluster $name is there"
else
  say "creating the cluster $name (a minute or two)"
  kind create cluster --name "$name" --config "$here/cluster.yaml" --wait 120s
fi
say "building the image and loading it into the nodes"
docker build -f "$top/deploy/Dockerfile" -t muster-scheduler:dev "$top"
kind load docker-image muster-scheduler:dev --name "$name"

KUBECONFIG=$(mktemp)
export KUBECONFIG
trap 'rm -f "$KUBECONFIG"' EXIT
kind get kubeconfig --name "$name" >"$KUBECONFIG"

say "two GPUs for each worker"
"$here/gpus.sh" "$name-worker" "$name-worker2"
say "installing Muster"
kubectl apply -f "$top/config/crd/dialects"
helm upgrade --install muster "$top/deploy/helm/muster" --namespace muster-system --create-namespace \
  --values "$here/values.yaml"
kubectl --namespace muster-system rollout restart deployment/muster
kubectl --namespace muster-system rollout status deployment/muster --timeout 180s
"$here/story.sh"
say "yours: kubectl --context kind-$name get nodes"
