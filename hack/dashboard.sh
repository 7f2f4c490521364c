#!/usr/bin/env bash
# The page of kubectl afloat dashboard: build bundles it into internal/plugin/dashboard/assets, check looks whether what is there is current
# and tests it in a browser, and browser installs what tests in a browser need.
#
# The bundle is committed, so that the plugin is built without Node.js. Tests are left out where Node.js or Chromium cannot be
# installed, which is said.
set -euo pipefail
cd "$(dirname "$0")/../internal/plugin/dashboard/ui"

# packages installs what package-lock.json lists.
packages() {
  if [[ node_modules/.package-lock.json -nt package-lock.json ]]; then return; fi
  npm ci --ignore-scripts --no-audit --no-fund --loglevel=error
  touch node_modules/.package-lock.json
}

# install_chromium installs Debian's Chromium.
install_chromium() {
  if type -P chromium >/dev/null; then return; fi
  if [[ $(id -u) != 0 ]] || ! command -v apt-get >/dev/null; then
    echo "there is no chromium, and it cannot be installed here: tests in a browser are left out"
    return
  fi
  export DEBIAN_FRONTEND=noninteractive
  for lists in old new; do # lists of packages may be missing or old
    if [[ $lists = new ]]; then apt-get update -qq || true; fi
    if apt-get -o DPkg::Lock::Timeout=300 install -y -qq --no-install-recommends chromium >/dev/null; then return; fi
  done
  echo "chromium could not be installed: tests in a browser are left out"
}

if ! command -v npm >/dev/null; then
  echo "the page is neither built nor tested: that needs Node.js 20 and npm"
  if [[ $1 = build ]]; then exit 1; fi
  exit 0
fi

packages
case $1 in
build)
  npm run --silent build
  ;;
check)
  npm run --silent check
  npm run --silent test
  before=$(sha256sum ../assets/*)
  npm run --silent build
  if [[ $before != "$(sha256sum ../assets/*)" ]]; then
    echo "the bundle was not current: run make dashboard" >&2
    exit 1
  fi
  install_chromium
  npm run --silent test:browser
  ;;
browser)
  install_chromium
  ;;
esac
