#!/usr/bin/env bash
# Builds the application from the package registries into a folder that can run: apps/todo/build.sh [OUT]
# The folder gets the sources as well, so that what was copied from there can be built again in place: ./build.sh .
# A service is built again only when its sources or the versions it pins have changed.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
out=${1:-$here/../../target/todo}
mkdir -p "$out"
out=$(cd "$out" && pwd)

# sources FOLDER: lists what people wrote there, not what a build made of it.
sources() {
  (cd "$here/$1" && find . \( -name node_modules -o -name venv -o -name target -o -name __pycache__ \) -prune \
    -o -type f ! -name auth -print | LC_ALL=C sort)
}

# build SERVICE COMMAND...: runs the command in the service's folder, unless it ran before for the same sources.
build() {
  local service=$1 stamp file
  shift
  stamp=$({ cat "${BASH_SOURCE[0]}"; sources "$service" | (cd "$here/$service" && xargs sha256sum); } | sha256sum)
  if [ "$(cat "$out/.built/$service" 2>/dev/null)" = "$stamp" ]; then return 0; fi
  echo "building: $service"
  rm -f "$out/.built/$service"
  if [ "$out" != "$here" ]; then
    while read -r file; do install -D -m 644 "$here/$service/$file" "$out/$service/$file"; done < <(sources "$service")
  fi
  (cd "$out/$service" && "$@")
  mkdir -p "$out/.built"
  printf '%s\n' "$stamp" >"$out/.built/$service"
}

# unless_pinned FILE FOLDER COMMAND...: runs the command unless it made the folder from the same pinned versions.
unless_pinned() {
  local pins=$1 folder=$2
  shift 2
  if cmp -s "$pins" "$folder/.pins"; then return 0; fi
  rm -rf "$folder"
  "$@"
  cp "$pins" "$folder/.pins"
}

node_packages() { npm ci --ignore-scripts --no-audit --no-fund --loglevel=error >/dev/null; }
python_packages() {
  python3 -m venv venv
  venv/bin/pip install --quiet --disable-pip-version-check --no-deps -r requirements.txt
}

build auth go build -trimpath -o auth .
build users mvn --quiet --batch-mode -Dstyle.color=never package
build todos unless_pinned package-lock.json node_modules node_packages
build frontend unless_pinned package-lock.json node_modules node_packages
build log-processor unless_pinned requirements.txt venv python_packages
build redis true
if [ "$out" != "$here" ]; then
  rm -rf "$out/cases"
  cp -r "$here/cases" "$here/workload" "$here/build.sh" "$here/README.md" "$out/"
  # This one lies where the build is.
  sed '/^directory: /d' "$here/faultscope.yaml" >"$out/faultscope.yaml"
fi
