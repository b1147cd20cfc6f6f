#!/bin/sh
# before the files go. dpkg calls it with "remove" or "upgrade"; rpm with the number of versions that are left
set -eu
case $1 in
remove | 0) ;;
*) exit 0 ;;
esac
command -v systemctl >/dev/null || exit 0
[ ! -d /run/systemd/system ] || systemctl stop ibpulse ibpulse-gateway
systemctl disable --quiet ibpulse ibpulse-gateway
