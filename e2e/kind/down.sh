#!/bin/sh
# make kind-down: the end of what make kind has made, but for the two images and what docker keeps of builds.
set -eu

name=gpushare
folder=${XDG_CACHE_HOME:-$HOME/.cache}/gpushare-scheduler/kind

command -v kind >/dev/null || { echo "make kind-down: kind is not on PATH" >&2; exit 3; }
kind delete cluster --name "$name" --kubeconfig "$folder/kubeconfig"
rm -rf "$folder"
