#!/usr/bin/env bash
# Changes the code in small ways, one at a time, and looks whether a test of its package fails (https://gremlins.dev). Called by `make mutate`.
#
# MINUTES is how long it may take in all; PACKAGES are the packages, each of which gets a share of it. What is not reached in that time is not
# tried. Simulations are left out, because a mutant must cost seconds: that no other test sees one does not say that they do not. What was
# found is written to docs/quality/mutations.md by report.awk.
set -euo pipefail
cd "$(dirname "$0")/.."
minutes=${MINUTES:-30}
read -ra packages <<<"${PACKAGES:-engine/rollout engine/lifecycle engine/readiness engine/recreate engine/inplace engine/revision workload/cloneset pods/sidecarset pods/workloadspread node/recreate node/metadata node/imagepull operation/containerrecreate operation/imagepull}"
out=${OUT:-$(mktemp -d)}
mkdir -p bin "$out"
GOFLAGS='' go -C hack/mutate build -trimpath -o ../../bin/gremlins github.com/go-gremlins/gremlins/cmd/gremlins
export SIM=1 GOFLAGS="${GOFLAGS:-} -short -vet=off -skip=^TestSimulated"
share=$((minutes * 60 / ${#packages[@]}))
for package in "${packages[@]}"; do
  echo "== internal/$package, $share s"
  # An interrupt ends it after the mutants that are being tried.
  timeout --signal=INT --kill-after=60 "$share" bin/gremlins unleash "./internal/$package" --workers "${WORKERS:-2}" --timeout-coefficient 20 >"$out/${package//\//_}.txt" 2>&1 || true
  grep -c -E '^ *(KILLED|LIVED)' "$out/${package//\//_}.txt" || true
done
page=docs/quality/mutations.md
kept=$(sed -n '/^## What became of survivors/,$p' "$page" 2>/dev/null || true)
mkdir -p docs/quality
{
  echo "# Mutations"
  echo
  echo "What \`make mutate\` found on $(date -u +%F), in $minutes minutes with ${WORKERS:-2} workers: the code was changed in small ways, one at a time (a comparison turned"
  echo "round, a bound moved by one, \`+\` for \`-\`), and the tests of its package were run, without simulations and end-to-end tests. *Killed* is a change"
  echo "that a test saw, *lived* one that none saw; *not covered* is code that these tests do not run. What the time did not suffice for was not tried. Of what is left"
  echo "a part changes nothing that anybody could see, such as the capacity of a slice, and a part is seen by simulations alone."
  echo
  awk -f hack/mutate/report.awk "$out"/*.txt
  echo "${kept:-## What became of survivors}"
} >"$page.new"
mv "$page.new" "$page"
echo "written to $page; the output is in $out"
