#!/usr/bin/env bash
# Installs the programs of others that the exporter tests need, in the versions that are pinned here, into the folder
# that is given. What is there already and was made from the same pins is left as it is.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)/clients
mkdir -p "$1"
into=$(cd "$1" && pwd)

zipkin=3.5.1
jaeger=v1.76.0

# once NAME PINS COMMAND...: runs the command unless it ran for the same pins before.
once() {
  local name=$1 pins=$2
  shift 2
  local stamp
  stamp=$(printf '%s' "$pins" | cat - "${BASH_SOURCE[0]}" | sha256sum)
  if [ "$(cat "$into/$name.stamp" 2>/dev/null)" = "$stamp" ]; then return 0; fi
  echo "installing: $name"
  rm -rf "${into:?}/$name"
  "$@"
  printf '%s\n' "$stamp" >"$into/$name.stamp"
}

python_in() {
  python3 -m venv "$into/$1"
  # All of them are named: py_zipkin 0.11 asks for a thriftpy that no longer builds.
  "$into/$1/bin/pip" install --quiet --disable-pip-version-check --no-deps -r "$here/$1/requirements.txt"
}

node_in() {
  mkdir -p "$into/node"
  cp "$here/node/package.json" "$here/node/package-lock.json" "$into/node/"
  (cd "$into/node" && npm ci --ignore-scripts --no-audit --no-fund --loglevel=error >/dev/null)
}

go_in() { (cd "$here/go" && go build -o "$into/go/client" .); }

# Jaeger as its own module says, with its own list of checksums.
jaeger_in() {
  local module
  module=$(cd "$(mktemp -d)" && go mod download -json "github.com/jaegertracing/jaeger@$jaeger" |
    sed -n 's/^\t"Dir": "\(.*\)",$/\1/p')
  mkdir -p "$into/jaeger"
  cp -r "$module" "$into/jaeger/source"
  chmod -R u+w "$into/jaeger/source"
  (cd "$into/jaeger/source" && go build -o "$into/jaeger/all-in-one" ./cmd/all-in-one)
  rm -rf "$into/jaeger/source"
}

rust_in() { cargo build --quiet --locked --manifest-path "$here/rust/Cargo.toml" --target-dir "$into/rust"; }

zipkin_in() {
  mkdir -p "$into/zipkin"
  mvn --quiet --batch-mode org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy \
    "-Dartifact=io.zipkin:zipkin-server:$zipkin:jar:exec" "-DoutputDirectory=$into/zipkin" >/dev/null
  ln -sf "zipkin/zipkin-server-$zipkin-exec.jar" "$into/zipkin.jar"
}

once python "$(cat "$here/python/requirements.txt")" python_in python
once python-old "$(cat "$here/python-old/requirements.txt")" python_in python-old
once node "$(cat "$here/node/package-lock.json")" node_in
cp "$here"/node/*.js "$into/node/"
once go "$(cat "$here"/go/*)" go_in
once rust "$(cat "$here/rust/Cargo.lock" "$here/rust/src/main.rs")" rust_in
once zipkin "$zipkin" zipkin_in
once jaeger "$jaeger" jaeger_in
