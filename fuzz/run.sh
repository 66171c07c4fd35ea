#!/usr/bin/env bash
# Builds all fuzz targets with coverage and runs each for a while; needs neither nightly nor cargo-fuzz.
#
#   fuzz/run.sh [SECONDS] [TARGET ...]
#
# A crash ends it with the input's path. What was found interesting stays in fuzz/corpus for the next time.
set -euo pipefail
cd "$(dirname "$0")"
seconds=${1:-60}
shift || true
export RUSTC_BOOTSTRAP=1
passes="-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4"
passes+=" -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table"
passes+=" -Cllvm-args=-sanitizer-coverage-trace-compares"
host=$(rustc -vV | sed -n 's/^host: //p')
# With a target named, build scripts and macros stay as they are.
RUSTFLAGS="--cfg fuzzing -Cdebug-assertions -Ccodegen-units=1 $passes" \
  cargo build --release --target "$host" --bins
(cd .. && FAULTSCOPE_FUZZ_CORPUS=$PWD/fuzz/corpus cargo test --quiet -p faultscope-store --lib good_bodies_are_kept >/dev/null)
targets=("$@")
if [ ${#targets[@]} -eq 0 ]; then
  for file in fuzz_targets/*.rs; do targets+=("$(basename "$file" .rs)"); done
fi
for target in "${targets[@]}"; do
  mkdir -p "corpus/$target" artifacts
  echo "== $target, ${seconds}s"
  "target/$host/release/$target" "corpus/$target" -max_total_time="$seconds" -max_len=65536 -timeout=10 \
    -rss_limit_mb=1024 -artifact_prefix="artifacts/$target-" -print_final_stats=1 2>"artifacts/$target.log" ||
    { tail -n 40 "artifacts/$target.log" >&2; exit 1; }
  grep -E 'cov:|executed_units|peak_rss' "artifacts/$target.log" | tail -n 3
done
