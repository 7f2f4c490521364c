#!/usr/bin/env bash
# Simulates days in the life of one workload of each kind that has a simulation, with one manager that does not start again, and writes
# to docs/quality/soak.md, or to REPORT, what its memory did. Called by `make soak`. HOURS are six simulated days by default.
set -euo pipefail
cd "$(dirname "$0")/.."
report=${REPORT:-docs/quality/soak.md}
hours=${HOURS:-144}
mapfile -t packages < <(grep -l '^func TestSoak(' -r internal --include=soak_test.go | xargs -n 1 dirname | sort)
rows="" all=0
for package in "${packages[@]}"; do
  kind=${package#internal/kinds/}
  log=$(SOAK=$hours go test -count=1 -run '^TestSoak$' -v -timeout 3h "./$package" 2>&1) || { all=1; printf '%s\n' "$log" | head -40; }
  line=$(grep -o '[0-9hms]* simulated in .*' <<<"$log" || true)
  pattern='^([0-9hms]+) simulated in ([0-9hms.]+), ([0-9]+) rounds: heap ([0-9.]+) MiB and ([0-9]+) goroutines in the second quarter, ([0-9.]+) MiB and ([0-9]+)'
  if [[ $line =~ $pattern ]]; then
    result="flat"
    if grep -q -- '^--- FAIL' <<<"$log"; then result="**grows**"; fi
    rows+="| ${kind%/controller} | ${BASH_REMATCH[1]} | ${BASH_REMATCH[3]} | ${BASH_REMATCH[4]} | ${BASH_REMATCH[6]} | ${BASH_REMATCH[5]} | ${BASH_REMATCH[7]} | $result | ${BASH_REMATCH[2]} |"$'\n'
  else
    rows+="| ${kind%/controller} | | | | | | | **ended early** | |"$'\n'
  fi
  echo "$kind: ${line:-ended early}"
done

cat >"$report" <<END
# Days of work: memory and rest

Made by \`make soak\` on $(date +%Y-%m-%d), at commit $(git rev-parse --short=12 HEAD). For each kind that has a simulation, the controller itself, with its caches, work queue
and writes, lives through days of simulated time. Users change templates, numbers and strategies, pods crash and are deleted, some requests are refused, and some answers are
lost. The manager is never started again, so that it keeps what it should not have kept. In each round all of this goes on for a while, then everything comes to
rest, what is there is compared with what the spec asks for, and it is checked that nothing more is written.

The heap after a garbage collection is that of the whole test, with the simulated cluster in it; from the second quarter of the time to the last one it may not
grow by more than a fifth and 1 MiB.

| kind | simulated | rounds | heap, 2nd quarter, MiB | heap, last quarter, MiB | goroutines, 2nd quarter | goroutines, last quarter | memory | took |
|---|--:|--:|--:|--:|--:|--:|---|--:|
$rows
What this does not show is what client-go and the runtime keep in a real process: [two real hours of rollouts of all kinds](hours.md) do.
END
echo "the table is in $report"
exit $all
