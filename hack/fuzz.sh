#!/usr/bin/env bash
# Plays the fuzz targets, each for TIME. Called by `make fuzz`; see docs/develop/fuzzing.md.
#
# TARGET is one of them, such as FuzzWebhooks, and PACKAGE a package below internal or api whose targets are played,
# such as engine/inplace or api/pub. JOBS is how many targets are played at once, and WORKERS how many processes try
# inputs of each. A line per target is printed when it has been played, and REPORT has a row for each; rows of targets
# that are not played stay as they are. A failure does not end the run, but its exit code. The input that fails is in
# testdata/fuzz of the package, where every test run plays it again.
set -uo pipefail
cd "$(dirname "$0")/.."
export time=${TIME:-10m} workers=${WORKERS:-2} report=${REPORT:-bin/fuzz.md}
jobs=${JOBS:-1}
commit=$(git rev-parse --short=12 HEAD)
root=$PWD
corpora=$(go env GOCACHE)/fuzz/$(go list -m)
export commit root corpora
rm -rf bin/fuzz
mkdir -p bin/fuzz "$(dirname "$report")"
touch "$report"

# binary prints where the test binary of a package is.
binary() { echo "$root/bin/fuzz/${1//\//-}.test"; }

# build builds the test binaries of packages one after the other, and prints each target whose binary is there.
build() {
  local package target
  while read -r package target; do
    [[ -e $(binary "$package") ]] || go test -vet=off -ldflags '-s -w' -c -fuzz . -o "$(binary "$package")" "./$package" >&2 </dev/null
    echo "$package $target"
  done <<<"$targets"
}

# play plays a target, given by its package and name, and puts its row into the report in place of the one it had.
play() {
  local out code result=ok last executions new rows
  out=$(cd "$1" && "$(binary "$1")" -test.run '^$' -test.fuzz "^$2\$" -test.fuzztime "$time" -test.fuzzminimizetime 2s -test.parallel "$workers" \
    -test.fuzzcachedir "$corpora/$1" 2>&1)
  code=$?
  ((code == 0)) || result=FAILED
  last=$(grep -E '^fuzz: elapsed: .*execs: ' <<<"$out" | tail -n 1)
  executions=$(sed -nE 's/.*execs: ([0-9]+).*/\1/p' <<<"$last")
  new=$(sed -nE 's/.*new interesting: ([0-9]+).*/\1/p' <<<"$last")
  exec 9>bin/fuzz.lock
  flock 9
  printf '%-45s %-32s %10s executions %6s new inputs  %s\n' "$1" "$2" "${executions:-0}" "${new:-0}" "$result"
  ((code == 0)) || tail -n 40 <<<"$out" | cut -c1-2000 >&2
  rows=$({
    grep '^| [a-z]*/' "$report" | grep -vF "| $1 | $2 |"
    echo "| $1 | $2 | $time | ${executions:-0} | ${new:-0} | $result | $(date +%Y-%m-%d) | $commit |"
  } | sort)
  cat >"$report" <<END
# Fuzz targets, played

Made by \`make fuzz\` on $(nproc) cores: a row for each target, with the time for which it was played without a pause, how many inputs were
tried, and how many led to code that no input had reached before. Rows may be of several sittings, and several targets may have been
played at once; each row says the day and the commit. What must hold for each input is in [fuzzing](../develop/fuzzing.md).

| package | target | time | inputs | new | result | day | commit |
|---|---|--:|--:|--:|---|---|---|
$rows
END
  return $code
}
export -f binary play

targets=$(grep -rlE '^func Fuzz[A-Za-z0-9_]+\(f \*testing\.F\)' --include='*_test.go' api internal cmd | xargs -n 1 dirname | sort -u |
  while read -r package; do
    case ${PACKAGE:-} in
      "" | "$package" | "${package#internal/}") ;;
      *) continue ;;
    esac
    sed -nE 's/^func (Fuzz[A-Za-z0-9_]+)\(f \*testing\.F\).*/\1/p' "$package"/*_test.go | sort |
      while read -r target; do
        [[ -n ${TARGET:-} && $TARGET != "$target" ]] || echo "$package $target"
      done
  done)
if [[ -z $targets ]]; then
  echo "no target has that name: ${TARGET:-any} in ${PACKAGE:-any package}" >&2
  exit 1
fi
code=0
build | xargs -P "$jobs" -n 2 bash -c 'play "$@"' play || code=1
rm -rf bin/fuzz
echo "the table is in $report"
exit $code
