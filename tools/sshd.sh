#!/bin/sh
# Have an SSH server for the tests of work on another machine: the one that is there, or Debian's package where we may
# install it. The tests start their own, on the loopback, as the current user; none is started as a service. So it is
# installed in containers only, where nothing starts services. Never fails: without it those tests are skipped.
set -u

PATH=$PATH:/usr/sbin:/usr/local/sbin
command -v sshd >/dev/null 2>&1 && exit 0

if grep -qs '^ID=debian' /etc/os-release && [ "$(id -u)" = 0 ] && [ ! -d /run/systemd/system ]; then
    echo "Installing OpenSSH's server from Debian for the tests of work on another machine"
    policy=/usr/sbin/policy-rc.d # what says whether a package may start its service
    if [ ! -e "$policy" ]; then
        printf '#!/bin/sh\nexit 101\n' >"$policy" && chmod +x "$policy"
        trap 'rm -f "$policy"' EXIT
    fi
    { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends openssh-server; } \
        >/dev/null && exit 0
fi
echo "There is no SSH server on this machine and it cannot be installed from here: the tests of --on will be skipped." \
    "On Debian: apt install openssh-server." >&2
