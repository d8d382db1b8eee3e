#!/bin/sh
# Have a Chromium for the browser tests: the one that is there, or Debian's package where we may install it.
# Never fails: without a browser the tests that need one are skipped, and this says so.
set -u

for name in "${PERFKIT_CHROMIUM:-}" chromium chromium-browser google-chrome; do
    [ -n "$name" ] && command -v "$name" >/dev/null 2>&1 && exit 0
done

if grep -qs '^ID=debian' /etc/os-release && [ "$(id -u)" = 0 ]; then
    echo "Installing Chromium from Debian for the browser tests"
    { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium; } \
        >/dev/null && exit 0
fi
echo "There is no Chromium on this machine and it cannot be installed from here: the browser tests will be skipped." \
    "On Debian: apt install chromium; elsewhere set PERFKIT_CHROMIUM=/path/to/it." >&2
