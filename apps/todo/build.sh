#!/usr/bin/env bash
# Builds the application from the package registries into a folder that can run: apps/todo/build.sh [OUT]
# Each service is built again only when its sources or the versions it pins have changed.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
out=${1:-$here/../../target/todo}
mkdir -p "$out"
out=$(cd "$out" && pwd)

# once NAME FOLDER COMMAND...: runs the command unless it ran before for the same files of the folder.
once() {
  local name=$1 sources=$2 stamp
  shift 2
  stamp=$({ cat "${BASH_SOURCE[0]}"; cd "$here/$sources" && find . -type f -print0 | sort -z | xargs -0 sha256sum; } | sha256sum)
  if [ "$(cat "$out/.stamps/$name" 2>/dev/null)" = "$stamp" ]; then return 0; fi
  echo "building: $name"
  rm -f "$out/.stamps/$name"
  "$@"
  mkdir -p "$out/.stamps"
  printf '%s\n' "$stamp" >"$out/.stamps/$name"
}

build_auth() { (cd "$here/auth" && go build -trimpath -o "$out/auth/auth" .); }

# Maven writes beside the sources it reads, so it gets a copy of them.
build_users() {
  local copy=$out/.build-users
  rm -rf "$copy" "$out/users"
  cp -r "$here/users" "$copy"
  mvn --quiet --batch-mode -Dstyle.color=never --file "$copy/pom.xml" package
  mkdir -p "$out/users"
  cp -r "$copy/target/users.jar" "$copy/target/lib" "$out/users/"
  rm -rf "$copy"
}

# build_node SERVICE: packages are installed anew only when the lock file has changed.
build_node() {
  mkdir -p "$out/$1"
  if ! cmp -s "$here/$1/package-lock.json" "$out/$1/package-lock.json"; then
    cp "$here/$1/package.json" "$here/$1/package-lock.json" "$out/$1/"
    rm -rf "$out/$1/node_modules"
    (cd "$out/$1" && npm ci --ignore-scripts --no-audit --no-fund --loglevel=error >/dev/null) ||
      { rm -f "$out/$1/package-lock.json"; return 1; }
  fi
  cp -r "$here/$1/." "$out/$1/"
}

build_log_processor() {
  local into=$out/log-processor
  mkdir -p "$into"
  if ! cmp -s "$here/log-processor/requirements.txt" "$into/requirements.txt"; then
    rm -rf "$into/venv"
    python3 -m venv "$into/venv"
    "$into/venv/bin/pip" install --quiet --disable-pip-version-check --no-deps -r "$here/log-processor/requirements.txt"
  fi
  cp "$here"/log-processor/*.py "$here/log-processor/requirements.txt" "$into/"
}

build_redis() {
  mkdir -p "$out/redis"
  cp "$here/redis/redis.conf" "$out/redis/"
}

# The application file of the sources says where the build is; the one in the build lies beside it.
describe() {
  rm -rf "$out/cases"
  cp -r "$here/cases" "$here/workload" "$out/"
  sed '/^directory: /d' "$here/faultscope.yaml" >"$out/faultscope.yaml"
}

once auth auth build_auth
once users users build_users
once todos todos build_node todos
once frontend frontend build_node frontend
once log-processor log-processor build_log_processor
once redis redis build_redis
describe
