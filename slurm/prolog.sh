#!/bin/sh
# Slurm prolog: writes which GPUs a job holds on this node, so that ibpulse knows whose traffic it measures. The file is
# DIR/ID.json; docs/jobs.md describes it.
#
# The exit status is always 0, because Slurm drains a node whose prolog fails.

directory=${IBPULSE_JOBS__OWNERS_DIR:-/run/ibpulse-jobs}
gpus=${IBPULSE_NVIDIA_GPUS:-/proc/driver/nvidia/gpus}
# How Slurm numbers GPUs: "address" with AutoDetect=nvml in gres.conf, "file" if gres.conf names device files. Without a
# value, the document names only GPUs that are the same either way.
order=${IBPULSE_GPU_ORDER:-}

# Slurm sets no search path
PATH=/usr/sbin:/usr/bin:/sbin:/bin
LC_ALL=C
export PATH LC_ALL
unset CDPATH IFS
umask 022
set +C +e

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

is_number() {
    case $1 in
        0 | [1-9] | [1-9][0-9] | [1-9][0-9][0-9]) ;;
        *) return 1 ;;
    esac
}

# Prints the numbers of a list such as 0,2-3; fails if it is not such a list.
expand() {
    case $1 in
        '' | *[!0-9,-]* | ,* | *, | *,,*) return 1 ;;
    esac
    # shellcheck disable=SC2046 # each range is a word
    set -- $(printf '%s' "$1" | tr ',' ' ')
    for range; do
        first=${range%%-*}
        last=${range#*-}
        if ! is_number "$first" || ! is_number "$last" || [ "$first" -gt "$last" ]; then return 1; fi
        while [ "$first" -le "$last" ]; do
            printf '%s ' "$first"
            first=$((first + 1))
        done
    done
}

# Prints NUMBER=ADDRESS for each GPU in the order of PCI addresses. The numbers count the addresses ("address"), or are
# those of the device files /dev/nvidiaNUMBER ("file").
list_gpus() {
    count=0
    for folder in "$gpus"/*; do
        address=${folder##*/}
        case $address in
            *[!0-9a-f:.]*) continue ;;
        esac
        while read -r word what number _; do
            if [ "$word $what" = "Device Minor:" ]; then
                [ "$1" = file ] || number=$count
                printf '%s=%s ' "$number" "$address"
                count=$((count + 1))
            fi
        done <"$folder/information"
    done 2>/dev/null
}

# Prints the PCI addresses of the GPUs in a list as JSON strings; fails if one of them is unknown. The numbers are those of
# list_gpus.
find_addresses() {
    numbers=" $(expand "$2")" || return 1
    known=" $(list_gpus "$1")"
    for number in $numbers; do
        case $known in
            *" $number="*) ;;
            *) return 1 ;;
        esac
    done
    found=
    for gpu in $known; do
        case $numbers in
            *" ${gpu%%=*} "*) found="$found${found:+, }\"${gpu#*=}\"" ;;
        esac
    done
    printf '%s' "$found"
}

# Adds the GPUs of a list to the document, or says why it cannot.
add_gpus() {
    list="job $id: SLURM_JOB_GPUS: \"$(clean "$1")\""
    case ${CUDA_VISIBLE_DEVICES:-} in
        *MIG*)
            say "$list names instances of GPUs (MIG)"
            return
            ;;
    esac
    by_address=$(find_addresses address "$1")
    by_file=$(find_addresses file "$1")
    case $order in
        address) by_file=$by_address ;;
        file) by_address=$by_file ;;
    esac
    if [ "$by_address" != "$by_file" ]; then
        say "$list names other GPUs by PCI address than by device file; set order in the first lines of the prolog"
    elif [ -z "$by_address" ]; then
        say "$list names GPUs that are not in $gpus"
    else
        body="$body, \"gpus\": [$by_address]"
    fi
}

read_id
body="{\"id\": \"$id\", \"scheduler\": \"slurm\""
name=$(clean "${SLURM_JOB_NAME:-}")
account=$(clean "${SLURM_JOB_ACCOUNT:-}")
[ -z "$name" ] || body="$body, \"name\": \"$name\""
[ -z "$account" ] || body="$body, \"namespace\": \"$account\""
# without GPUs of its own, a job owns the rails only if it is alone on the node, which ibpulse decides
if [ -n "${SLURM_JOB_GPUS:-}" ]; then add_gpus "$SLURM_JOB_GPUS"; fi
boot=$(clean "$(cat /proc/sys/kernel/random/boot_id 2>/dev/null)")
[ -z "$boot" ] || body="$body, \"boot_id\": \"$boot\""
body="$body}"

enter
new=.$id.json.new
rm -f -- "$new"
# noclobber creates the file, and never writes to one that exists
(set -C && printf '%s\n' "$body" >"$new") 2>/dev/null || {
    rm -f -- "$new"
    give_up "job $id: cannot write to $directory"
}
if [ -d "$id.json" ] || ! mv -f -- "$new" "$id.json" 2>/dev/null; then
    rm -f -- "$new"
    give_up "job $id: cannot replace $directory/$id.json"
fi
exit 0
