#!/bin/sh
# before the files of the package are put in place. dpkg calls it with "install" or "upgrade"; rpm with the number of
# versions that there will be
set -eu
case $1 in
install | 1) ;;
*) exit 0 ;;
esac
if [ -L /opt/ibpulse ] || [ -e /etc/systemd/system/ibpulse.service ]; then
    echo "ibpulse was installed without a package: 'sh install.sh --uninstall', or remove /opt/ibpulse and" \
        "/etc/systemd/system/ibpulse.service; its captures and settings stay" >&2
    exit 1
fi
