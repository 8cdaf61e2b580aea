#!/bin/sh
# The story of one gang on a cluster where Muster runs and four example.com/gpu are free: three are taken, a Volcano
# gang of four waits whole and says why, the three are given back, all four run. Ends with 0 when all of it came true.
# NAMESPACE (muster-story) is made for it and deleted; PATIENCE (60) are the seconds that each step may take.
set -eu
samples=$(cd "$(dirname "$0")/../../config/samples" && pwd)
namespace=${NAMESPACE:-muster-story}
patience=${PATIENCE:-60}

k() { kubectl --namespace "$namespace" "$@"; }
say() { printf '\n== %s\n' "$*"; }
fail() { printf 'error: %s\n' "$*" >&2; k get pods -o wide >&2; exit 1; }

# count JOB STATE: how many pods of a Job are in a state. Pods of others do not count.
count() {
  case $2 in
    running) k get pods -l "job-name=$1" -o 'jsonpath={range .items[*]}{.status.phase}{"\n"}{end}' | grep -cx Running ;;
    bound) k get pods -l "job-name=$1" -o 'jsonpath={range .items[*]}{.spec.nodeName}{"\n"}{end}' | grep -c . ;;
    told) k get pods -l "job-name=$1" -o 'jsonpath={range .items[*]}{.status.conditions[?(@.type=="PodScheduled")].message}{"\n"}{end}' | grep -c . ;;
  esac || true
}
until_count() { # JOB STATE NUMBER
  end=$(($(date +%s) + patience))
  while [ "$(count "$1" "$2")" -ne "$3" ]; do
    [ "$(date +%s)" -lt "$end" ] || fail "not within $patience s: $3 pods of $1 $2; there are $(count "$1" "$2")"
    sleep 0.2
  done
}

kubectl create namespace "$namespace" >/dev/null
trap 'kubectl delete namespace "$namespace" --wait=false >/dev/null' EXIT

say "three pods take three of the four GPUs"
k apply -f "$samples/gpu-hog.yaml"
until_count gpu-hog running 3
say "a gang of four, written for Volcano: all of it waits, and says why"
k apply -f "$samples/volcano-gang.yaml"
until_count train told 4
[ "$(count train bound)" -eq 0 ] || fail "a part of the gang was bound"
k get pods -l job-name=train -o 'jsonpath={.items[0].status.conditions[?(@.type=="PodScheduled")].message}{"\n"}'
say "the three are given back: all four run"
k delete -f "$samples/gpu-hog.yaml" --wait=false
until_count train running 4
k get pods -l job-name=train -o wide
say "the story held"
