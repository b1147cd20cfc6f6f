#!/bin/sh
# Slurm epilog: removes the file with which prolog.sh told ibpulse which GPUs a job holds on this node.
#
# The exit status is always 0, because Slurm drains a node whose epilog fails.

directory=${IBPULSE_JOBS__OWNERS_DIR:-/run/ibpulse-jobs}

# Slurm sets no search path
PATH=/usr/sbin:/usr/bin:/sbin:/bin
LC_ALL=C
export PATH LC_ALL
unset CDPATH IFS

say() {
    printf 'ibpulse: %s\n' "$1" >&2
    logger -t ibpulse -- "$1" 2>/dev/null
}

give_up() {
    say "$1"
    exit 0
}

# Prints a value without the characters that would need quoting in JSON or in a log, at most 128 of them.
clean() {
    printf '%s' "$1" | tr -c 'A-Za-z0-9 ._:@+=/-' '_' | cut -c 1-128
}

# Sets id to the number of the job, and gives up if it is not a number of at most 18 digits.
read_id() {
    id=${SLURM_JOB_ID:-}
    case $id in
        '' | 0* | *[!0-9]* | ???????????????????*)
            give_up "SLURM_JOB_ID: \"$(clean "$id")\" is not the number of a job"
            ;;
    esac
}

# Makes the directory and changes to it, so that no other user can replace it, and gives up if one can write to it.
enter() {
    case $directory in
        /*) ;;
        *) give_up "job $id: \"$directory\" is not an absolute path" ;;
    esac
    mkdir -m 755 -- "$directory" 2>/dev/null
    cd -P -- "$directory" 2>/dev/null || give_up "job $id: cannot change to $directory"
    [ "$(pwd -P)" = "$directory" ] || give_up "job $id: $directory is a link, or reached through one"
    # shellcheck disable=SC2012,SC2046 # POSIX has no other program for owner and mode; the words are mode, links, owner
    set -- $(ls -ldn .)
    [ "$3" = "$(id -u)" ] || give_up "job $id: $directory belongs to user $3, not to user $(id -u); remove it"
    case $1 in
        ?????w* | ????????w*) give_up "job $id: other users can write to $directory; use chmod go-w" ;;
    esac
}

read_id

# a node on which the prolog never ran
[ -e "$directory" ] || exit 0
enter
rm -f -- "$id.json" ".$id.json.new" 2>/dev/null || give_up "job $id: cannot remove $directory/$id.json"
exit 0
