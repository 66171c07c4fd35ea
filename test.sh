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
  need_packages cc:gcc python3:python3 curl:curl node:nodejs go:golang-go setpriv:util-linux redis-server:redis-server
}

lints() {
  cargo fmt --all --check
  cargo clippy --workspace --all-targets --quiet -- -D warnings
}

unit() { cargo test --workspace --quiet --lib --bins; }
integration() { cargo test --workspace --quiet --test '*'; }
docs() {
  cargo test --workspace --quiet --doc
  RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --quiet
}
release() { cargo build --release --quiet; }
demo() { ./target/release/faultscope demo --into "$(mktemp -d)/demo"; }

wanted=("$@")
slow=()
stage packages 120 packages
stage lints 600 lints
stage unit 600 unit
stage integration 600 integration
stage docs 300 docs
stage release 600 release
stage demo 20 demo
say "all stages passed in ${SECONDS}s"
for line in ${slow[@]+"${slow[@]}"}; do echo "over its budget: $line"; done
