#!/usr/bin/env bash
# Changes the code in small ways, one at a time, and looks whether a test of its package fails (hack/mutate). Called by `make mutate`.
#
# PACKAGES are the packages, one after the other; MINUTES is how long mutants of all of them may be tried, WORKERS how many at once. Simulations
# are left out, because a mutant must cost seconds: that no other test sees one does not say that they do not. What was found is written to
# docs/develop/mutations.md by report.awk, from what is in OUT: with the same OUT, a package may be tried again alone. With FILES, a regular
# expression, only these files are changed, and the result is printed and written nowhere.
set -euo pipefail
cd "$(dirname "$0")/.."
minutes=${MINUTES:-90}
engine="engine/rollout engine/lifecycle engine/readiness engine/inplace engine/revision engine/restart engine/expression engine/imageref engine/jsonfields engine/wording engine/podpatch engine/timing engine/waiting engine/podplan"
kinds=""
for kind in containerrecreate imagepull sidecarset workloadspread; do kinds+="kinds/$kind kinds/$kind/controller "; done
kinds+="kinds/cloneset kinds/statefulset kinds/daemonset" # whose controllers simulations play
read -ra packages <<<"${PACKAGES:-$engine node/restart node/metadata node/imagepull node/stop $kinds}"
out=${OUT:-$(mktemp -d)}
mkdir -p bin "$out"
go build -o bin/mutate ./hack/mutate
export SIM=1
# What plans have in common is tested by the kinds that plan with it, and a planner also by the passes of its controller.
declare -A tested=([engine/podplan]="./internal/kinds/cloneset ./internal/kinds/cloneset/controller ./internal/kinds/statefulset ./internal/kinds/statefulset/controller ./internal/kinds/daemonset ./internal/kinds/daemonset/controller")
for planner in internal/kinds/*/controller; do
  planner=${planner%/controller}
  tested[${planner#internal/}]="./$planner ./$planner/controller"
done
mutate() { bin/mutate -skip '^TestSimulated' -workers "${WORKERS:-2}" -tests "${tested[$package]:-}" "$@"; }
end=$((SECONDS + minutes * 60))
for package in "${packages[@]}"; do
  if [ -n "${FILES:-}" ]; then
    mutate -files "$FILES" "./internal/$package"
    continue
  fi
  left=$((end > SECONDS ? end - SECONDS : 0))
  mutate -for "${left}s" "./internal/$package" >"$out/${package//\//_}.new"
  mv "$out/${package//\//_}.new" "$out/${package//\//_}.txt"
  echo "internal/$package: $(cut -d' ' -f1 "$out/${package//\//_}.txt" | sort | uniq -c | tr -s '\n ' ' ')"
done
[ -z "${FILES:-}" ] || exit 0
page=docs/develop/mutations.md
kept=$(sed -n '/^## What became of survivors/,$p' "$page" 2>/dev/null || true)
{
  echo "# Mutations"
  echo
  echo "What \`make mutate\` found on $(date -u +%F): the code was changed in small ways, one at a time (a comparison turned round, a bound moved by one, \`+\` for \`-\`),"
  echo "and the tests of its package were run, without simulations and end-to-end tests. *Killed* is a change that a test saw, also by not coming to an end,"
  echo "*lived* one that none saw; *not covered* is code that these tests do not run, though those of another package may. For *not tried* the time did not suffice."
  echo
  awk -f hack/mutate/report.awk "$out"/*.txt
  echo "${kept:-## What became of survivors}"
} >"$page.new"
mv "$page.new" "$page"
echo "written to $page; the output is in $out"
