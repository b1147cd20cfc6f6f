#!/bin/sh
# once the files are gone: modules that Python compiled, and the ring. The captures and the settings stay
set -eu
case $1 in
remove | purge | 0) ;;
*) exit 0 ;;
esac
rm -rf /opt/ibpulse /run/ibpulse /run/private/ibpulse
[ ! -d /run/systemd/system ] || systemctl daemon-reload
