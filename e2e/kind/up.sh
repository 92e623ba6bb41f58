#!/bin/sh
# make kind: a cluster of kind with the image of this clone installed, and simulated cards. docs/evidence/tested-on.md says whether
# it has run. Its kubeconfig lies in the cache folder of the user, and the user's own is not touched.
set -eu
cd "$(dirname "$0")/../.."

name=gpushare
image=gpushare-scheduler:0.1.0
shell_image=local.test/busybox:1
folder=${XDG_CACHE_HOME:-$HOME/.cache}/gpushare-scheduler/kind
kubeconfig=$folder/kubeconfig

for program in docker kind kubectl; do
    command -v "$program" >/dev/null || { echo "make kind: $program is not on PATH" >&2; exit 3; }
done
if kind get clusters 2>/dev/null | grep -qx "$name"; then
    echo "make kind: the cluster $name is up already: export KUBECONFIG=$kubeconfig"
    exit 0
fi

commit=$(git describe --always --dirty --abbrev=12 --exclude='*' 2>/dev/null || true)
docker build -f deploy/images/Dockerfile --build-arg COMMIT="$commit" -t "$image" .
docker pull busybox:1.37
docker tag busybox:1.37 "$shell_image"

mkdir -p "$folder"
kind create cluster --name "$name" --config e2e/kind/cluster.yaml --kubeconfig "$kubeconfig" --wait 180s
kind load docker-image "$image" "$shell_image" --name "$name"

export KUBECONFIG="$kubeconfig"
minor=$(kubectl get nodes -o jsonpath='{.items[0].status.nodeInfo.kubeletVersion}' | cut -d. -f2)
if [ "$minor" -lt 34 ]; then
    echo "make kind: the device plugin needs a kubelet from 1.34 on, and this kind brings 1.$minor: take a newer kind" >&2
    exit 1
fi
kubectl apply -k e2e/kind/simulated
kubectl -n kube-system rollout status deployment/gpushare-scheduler --timeout=180s
kubectl -n kube-system rollout status daemonset/gpushare-scheduler-device-plugin --timeout=180s

echo "up: export KUBECONFIG=$kubeconfig"
echo "tests: E2E_PROVIDER=kind make e2e      end: make kind-down"
