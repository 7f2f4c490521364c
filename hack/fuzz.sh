#!/usr/bin/env bash
# Plays the fuzz targets, each for TIME, one after the other. Called by `make fuzz`; see docs/develop/fuzzing.md.
#
# TARGET is one of them, such as FuzzWebhooks, and PACKAGE a package below internal or api whose targets are played,
# such as engine/inplace or api/pub. WORKERS is how many processes try inputs at once. A line per target is printed when
# it has been played, and bin/fuzz.md is a table of all. A failure does not end the run, but its exit code. The
# input that fails is in testdata/fuzz of the package, where every test run plays it again.
set -uo pipefail
cd "$(dirname "$0")/.."
time=${TIME:-10m}
mkdir -p bin
table=bin/fuzz.md
failed=0
played=0
printf '| package | target | executions | new inputs | result |\n|---|---|---:|---:|---|\n' >"$table.new"
while read -r package; do
  case ${PACKAGE:-} in
    "" | "$package" | "${package#internal/}") ;;
    *) continue ;;
  esac
  for target in $(sed -nE 's/^func (Fuzz[A-Za-z0-9_]+)\(f \*testing\.F\).*/\1/p' "$package"/*_test.go | sort); do
    [ -z "${TARGET:-}" ] || [ "$TARGET" = "$target" ] || continue
    out=$(go test -run '^$' -fuzz "^$target\$" -fuzztime "$time" -fuzzminimizetime 2s -parallel "${WORKERS:-2}" "./$package" 2>&1)
    code=$?
    result=ok
    [ $code = 0 ] || result=FAILED failed=1
    last=$(grep -E '^fuzz: elapsed: .*execs: ' <<<"$out" | tail -n 1)
    executions=$(sed -nE 's/.*execs: ([0-9]+).*/\1/p' <<<"$last")
    new=$(sed -nE 's/.*new interesting: ([0-9]+).*/\1/p' <<<"$last")
    printf '%-45s %-32s %10s executions %6s new inputs  %s\n' "$package" "$target" "${executions:-0}" "${new:-0}" "$result"
    printf '| %s | %s | %s | %s | %s |\n' "$package" "$target" "${executions:-0}" "${new:-0}" "$result" >>"$table.new"
    [ $code = 0 ] || tail -n 40 <<<"$out" | cut -c1-2000 >&2
    played=$((played + 1))
  done
done < <(grep -rlE '^func Fuzz[A-Za-z0-9_]+\(f \*testing\.F\)' --include='*_test.go' api internal cmd | xargs -n 1 dirname | sort -u)
mv "$table.new" "$table"
if [ $played = 0 ]; then
  echo "no target has that name: ${TARGET:-any} in ${PACKAGE:-any package}" >&2
  exit 1
fi
echo "the table is in $table"
exit $failed
