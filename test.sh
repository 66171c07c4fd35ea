#!/usr/bin/env bash
# Runs all tests. Installs by itself, as root, the packages it needs, and says so. Fails, never skips,
# when something it needs is missing; outside data under ../shared/data is the one exception.
#
#   ./test.sh            everything
#   ./test.sh STAGE ...  only these stages (see the list at the end)
set -euo pipefail
cd "$(dirname "$0")"
export CARGO_TERM_COLOR=${CARGO_TERM_COLOR:-never}
# Tests start many small programs; line tables are enough to read a backtrace.
export RUST_BACKTRACE=1
# A red run can be seen again: property tests draw from this seed. Another one widens what was tried.
export PROPTEST_RNG_SEED=${PROPTEST_RNG_SEED:-20261116}
echo "property tests draw from seed $PROPTEST_RNG_SEED (PROPTEST_RNG_SEED)"

# Tests that need these say it too, but cargo hides what a passing test says.
[ -d ../shared/data/zipkin ] || echo "LEFT OUT: the ten real traces; ../shared/data/zipkin is not here"
[ -d ../shared/data/causal ] || echo "LEFT OUT: the larger causal sets; ../shared/data/causal is not here"
[ -f ../shared/data/actor-topologies.json ] ||
  echo "LEFT OUT: the paper's actor systems; ../shared/data/actor-topologies.json is not here"

say() { printf '\n== %s\n' "$*"; }

need_packages() {
  local missing=()
  local pair
  for pair in "$@"; do
    command -v "${pair%%:*}" >/dev/null 2>&1 || missing+=("${pair##*:}")
  done
  [ ${#missing[@]} -eq 0 ] && return 0
  if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null 2>&1; then
    echo "these packages are needed and cannot be installed from here: ${missing[*]}" >&2
    exit 1
  fi
  echo "installing: ${missing[*]}"
  apt-get update -qq
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
}

# stage NAME BUDGET_SECONDS COMMAND...: runs a stage and prints what it took beside its budget.
stage() {
  local name=$1 budget=$2
  shift 2
  if [ ${#wanted[@]} -gt 0 ] && ! printf '%s\n' "${wanted[@]}" | grep -qx "$name"; then return 0; fi
  say "$name (budget ${budget}s)"
  local start=$SECONDS
  "$@"
  local took=$((SECONDS - start))
  echo "-- $name took ${took}s of ${budget}s"
  if [ "$took" -gt "$budget" ]; then slow+=("$name: ${took}s of ${budget}s"); fi
}

packages() {
  need_packages cc:gcc python3:python3 curl:curl node:nodejs go:golang-go javac:default-jdk-headless setpriv:util-linux \
    redis-server:redis-server
}

lints() {
  cargo fmt --all --check
  cargo clippy --workspace --all-targets --quiet -- -D warnings
}

# Everything that is red is seen in one run.
unit() { cargo test --workspace --quiet --no-fail-fast --lib --bins; }
integration() { cargo test --workspace --quiet --no-fail-fast --test '*'; }
docs() {
  cargo test --workspace --quiet --doc
  RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --quiet
}

# Containers, in an engine of our own: its networks, mounts and firewall rules live and die with it.
containers() {
  if [ "$(id -u)" != 0 ]; then
    if ! docker info >/dev/null 2>&1; then
      echo "the docker tests need root, or an engine that DOCKER_HOST leads to" >&2
      exit 1
    fi
    container_tests
    return
  fi
  need_packages dockerd:docker.io docker:docker.io unshare:util-linux
  if ! is_static busybox; then need_packages no-static-busybox:busybox-static; fi
  (
    folder=$(mktemp -d /tmp/faultscope-docker.XXXXXX)
    export DOCKER_HOST=unix://$folder/socket
    unshare --net --mount dockerd --bridge=none --data-root "$folder/data" --exec-root "$folder/exec" \
      --pidfile "$folder/pid" -H "$DOCKER_HOST" >"$folder/log" 2>&1 &
    engine=$!
    trap 'kill "$engine" 2>/dev/null || true; wait "$engine" || true; rm -rf "$folder"' EXIT
    for _ in $(seq 150); do
      if docker info >/dev/null 2>&1; then break; fi
      sleep 0.2
    done
    if ! docker info >/dev/null 2>&1; then
      echo "the engine did not start; its last lines:" >&2
      tail -n 20 "$folder/log" >&2
      exit 1
    fi
    container_tests
  )
}

is_static() { command -v "$1" >/dev/null 2>&1 && ! ldd "$(command -v "$1")" >/dev/null 2>&1; }

# No registry is needed: the one image is made from scratch, of busybox and the contract's service.
container_tests() {
  cargo build --quiet --workspace --bin faultscope-launch
  local root file
  root=$(mktemp -d)
  mkdir -p "$root/files/bin" "$root/files/work"
  if ! is_static busybox; then
    echo "a busybox that needs no libraries is needed: Debian's busybox-static" >&2
    exit 1
  fi
  cp "$(command -v busybox)" "$root/files/bin/busybox"
  for file in sh cat hostname kill ls sleep touch wget; do ln -s busybox "$root/files/bin/$file"; done
  cp target/debug/faultscope-launch "$root/files/"
  for file in $(ldd target/debug/faultscope-launch | grep -o '/[^ ]*'); do
    mkdir -p "$root/files$(dirname "$file")"
    cp -L "$file" "$root/files$file"
  done
  printf 'FROM scratch\nCOPY files/ /\nWORKDIR /work\n' >"$root/Dockerfile"
  DOCKER_BUILDKIT=0 docker build -q -t faultscope-test "$root" 2>/dev/null
  rm -rf "$root"
  # With the whole workspace, so that features, and with them all dependencies, stay as they were built.
  cargo test --quiet --workspace --test docker -- --ignored
}

# Exporters, a Zipkin, a Jaeger and collectors of others, installed under target/exporters.
exporters() {
  need_packages npm:npm java:default-jre-headless mvn:maven
  if ! python3 -c 'import ensurepip' 2>/dev/null; then need_packages no-ensurepip:python3-venv; fi
  crates/cli/tests/exporters/install.sh target/exporters
  cargo test --quiet --workspace --test exporters -- --ignored
}

# Debuggers and profilers attach to services in slots, and servers that change their user start there.
profilers() {
  if [ "$(id -u)" != 0 ]; then
    echo "the tests with servers and profilers need root, since that is whose rights they limit" >&2
    exit 1
  fi
  need_packages nginx:nginx-light psql:postgresql gdb:gdb perf:linux-perf
  if ! python3 -c 'import ensurepip' 2>/dev/null; then need_packages no-ensurepip:python3-venv; fi
  if [ ! -x target/profilers/bin/py-spy ]; then
    python3 -m venv target/profilers
    target/profilers/bin/pip install --quiet py-spy
  fi
  cargo test --quiet --workspace --test it profilers:: -- --ignored
}

# The sample in four languages, built from the registries into target/todo.
todo() {
  need_packages go:golang-go node:nodejs npm:npm mvn:maven javac:default-jdk-headless redis-server:redis-server
  if ! python3 -c 'import ensurepip' 2>/dev/null; then need_packages no-ensurepip:python3-venv; fi
  apps/todo/build.sh target/todo
  cargo test --quiet --workspace --test it todo:: -- --ignored
}

release() { cargo build --release --quiet; }

# As an ordinary user with the usual limit of open files, since that is who types the README's first command.
demo() {
  local folder
  folder=$(mktemp -d /tmp/faultscope-demo.XXXXXX)
  cp target/release/faultscope "$folder/"
  (
    trap 'rm -rf "$folder"' EXIT
    ulimit -Sn 1024
    if [ "$(id -u)" = 0 ]; then
      chown -R 65534:65534 "$folder"
      cd /
      HOME="$folder" setpriv --reuid=65534 --regid=65534 --clear-groups --inh-caps=-all \
        "$folder/faultscope" demo --into "$folder/demo"
    else
      "$folder/faultscope" demo --into "$folder/demo"
    fi
  )
}

wanted=("$@")
slow=()
stage packages 120 packages
stage lints 600 lints
stage unit 600 unit
stage integration 600 integration
stage docker 300 containers
# The first time, most of it goes into building Jaeger and the clients.
stage exporters 900 exporters
stage profilers 120 profilers
# The first time, a minute of it goes into building the services.
stage todo 300 todo
stage docs 300 docs
stage release 600 release
stage demo 40 demo
say "all stages passed in ${SECONDS}s"
for line in ${slow[@]+"${slow[@]}"}; do echo "over its budget: $line"; done
