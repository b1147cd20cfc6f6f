#!/bin/sh
# Installs or upgrades ibpulse on this node, from the files of a release in this folder. As root:
#
#   sh install.sh ibpulse-*.whl requirements.txt    # with a newer wheel: an upgrade
#   sh install.sh --rollback                        # back to the version before
#   sh install.sh --uninstall                       # keeps the captures and the settings
#
# Each version is a folder /opt/ibpulse-VERSION with its Python environment, its units and its scripts for Slurm;
# /opt/ibpulse is a link to the one in use. An upgrade builds the new folder first and restarts the service last. The
# ring in /run/ibpulse stays, so the history of the last minutes does. Where systemd does not run, such as in the chroot of
# an image, nothing is started.
# PYTHON=... names another interpreter than python3. pip's variables apply: PIP_NO_INDEX=1 PIP_FIND_LINKS=wheels/
set -eu

python=${PYTHON:-python3}
here=$(cd "$(dirname "$0")" && pwd)
link=/opt/ibpulse units=/etc/systemd/system

fail() {
    echo "install.sh: $1" >&2
    exit 1
}

# the folder in use, or nothing
current() {
    readlink "$link" || true
}

# the folders of all versions
versions() {
    for folder in "$link"-*; do
        [ ! -x "$folder/bin/ibpulse" ] || echo "$folder"
    done
}

systemd_runs() {
    [ -d /run/systemd/system ]
}

# use_version FOLDER: point the link and the units at it, and start it
use_version() {
    ln -sfn "$1" "$link.new"
    mv -T "$link.new" "$link"
    for unit in ibpulse ibpulse-gateway; do
        rm -f "$units/$unit.service"
        [ ! -f "$1/$unit.service" ] || cp "$1/$unit.service" "$units/"
    done
    systemctl enable --quiet ibpulse
    if systemd_runs; then
        systemctl daemon-reload
        systemctl restart ibpulse
        systemctl try-restart ibpulse-gateway || true
    fi
}

install() {
    wheel=$1 locked=$2
    for file in "$wheel" "$locked" "$here/ibpulse.service"; do
        [ -f "$file" ] || fail "$file: there is no such file"
    done
    "$python" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' ||
        fail "$python: it needs Python 3.11 or newer with venv (Debian: python3-venv); name another with PYTHON=..."
    new=$link-$(basename "$wheel" | cut -d- -f2)
    [ "$(current)" != "$new" ] || fail "$new is in use already; --uninstall first to install it anew"
    [ ! -d "$link" ] || [ -L "$link" ] || fail "$link is not a link that this script made; move it away first"
    before=$(current)

    rm -rf "$new"
    "$python" -m venv "$new"
    "$new/bin/python" -m pip install --quiet --no-deps --require-hashes -r "$locked"
    "$new/bin/python" -m pip install --quiet --no-deps "$wheel"
    cp "$here"/ibpulse*.service "$here/prolog.sh" "$here/epilog.sh" "$new/"
    [ -z "$before" ] || echo "$before" >"$new/before"
    use_version "$new"
    for old in $(versions); do
        [ "$old" = "$new" ] || [ "$old" = "$before" ] || rm -rf "$old"
    done
    echo "$new is in use${before:+; --rollback returns to $before}"
}

rollback() {
    [ -f "$link/before" ] || fail "no version before this one is known"
    before=$(cat "$link/before")
    [ -d "$before" ] || fail "$before is gone; install its wheel again"
    use_version "$before"
    echo "$before is in use again"
}

uninstall() {
    if systemd_runs; then
        systemctl stop ibpulse ibpulse-gateway || true
    fi
    systemctl disable --quiet ibpulse ibpulse-gateway || true
    for old in $(versions); do
        rm -rf "$old"
    done
    rm -rf "$link" "$units/ibpulse.service" "$units/ibpulse-gateway.service" /run/ibpulse /run/private/ibpulse
    ! systemd_runs || systemctl daemon-reload
    echo "ibpulse is gone; its captures in /var/lib/ibpulse and its settings in /etc/default are kept"
}

# before anything else: --uninstall would remove the files of the package
[ ! -e /usr/lib/systemd/system/ibpulse.service ] || fail "a package has installed ibpulse; upgrade or remove that"
[ "$(id -u)" = 0 ] || fail "this needs root"
case ${1:-} in
--rollback) rollback ;;
--uninstall) uninstall ;;
*.whl) [ $# = 2 ] || fail "give one wheel and the list of requirements"; install "$1" "$2" ;;
*) fail "give a wheel and a list of requirements, --rollback or --uninstall" ;;
esac
