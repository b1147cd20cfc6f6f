#!/bin/sh
# once the files are there. dpkg calls it with the version before, if there was one; rpm with the number of versions
set -eu
# a container without systemd has the program only
command -v systemctl >/dev/null || exit 0
case $1 in
configure) first=$([ -n "${2:-}" ] || echo yes) ;;
1) first=yes ;;
*) first= ;;
esac
# what was turned off stays off at an upgrade
[ -z "$first" ] || systemctl enable --quiet ibpulse
if [ -d /run/systemd/system ]; then
    systemctl daemon-reload
    if [ -n "$first" ]; then
        systemctl restart ibpulse
    else
        systemctl try-restart ibpulse ibpulse-gateway
    fi
fi
