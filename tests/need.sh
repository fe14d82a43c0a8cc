#!/bin/sh
# need.sh test|fuzz|tidy|ci: sees to it that what this work needs is installed. On Debian as root it installs what is
# missing; otherwise it prints the one line to type, and fails.
# SPDX-License-Identifier: MIT
set -u

header() { echo "$1" | ${CC:-cc} -E - >/dev/null 2>&1; }
command_is_there() { PATH="$PATH:/usr/sbin:/sbin" command -v "$1" >/dev/null 2>&1; }

missing=
need() { # package, command...: the probe
    package=$1
    shift
    "$@" || missing="$missing $package"
}

cmocka='#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>'

tests() {
    need libc6-dev header '#include <stdio.h>'
    need libcmocka-dev header "$cmocka"
    need g++ command_is_there g++
    need python3 command_is_there python3
    need iproute2 command_is_there ip
    need nftables command_is_there nft
    need procps command_is_there ps
    need locales test -f /usr/share/i18n/locales/de_DE
    need openssh-client command_is_there ssh
    need openssh-server command_is_there sshd
    need mpich command_is_there mpiexec.hydra
    need slurmctld command_is_there slurmctld
    need slurmd command_is_there slurmd
    need slurm-client command_is_there srun
    need munge command_is_there munged
}
fuzzer_links() {
    echo 'int LLVMFuzzerTestOneInput(const char *d, unsigned long n) { return d == 0 && n == 1; }' |
        clang -fsanitize=fuzzer,address -x c - -o /dev/null 2>/dev/null
}
# On a machine of 64 bits that also has those of 32.
two_widths() { [ "$(uname -m)" != x86_64 ] || echo '#include <stdio.h>' | ${CC:-cc} -m32 -E - >/dev/null 2>&1; }
# And that run: by the kernel, which is known once they compile, or by an emulator.
narrow_runs() {
    [ "$(uname -m)" != x86_64 ] || command_is_there qemu-i386 && return
    program=$(mktemp)
    echo 'int main(void) { return 0; }' | ${CC:-cc} -m32 -x c - -o "$program" 2>/dev/null && "$program" 2>/dev/null
    status=$?
    rm -f "$program"
    return $status
}
clang_tools() {
    need clang command_is_there clang
    need libclang-rt-dev fuzzer_links
    need llvm command_is_there llvm-cov
}
tidy_tools() {
    need clang-tidy command_is_there clang-tidy
    need cppcheck command_is_there cppcheck
}

case ${1:-test} in
    test) tests ;;
    fuzz) clang_tools ;;
    tidy) tidy_tools ;;
    ci) tests; clang_tools; tidy_tools; need gcc-multilib two_widths; need qemu-user narrow_runs ;;
    *) echo "need.sh: what is '$1'?" >&2; exit 2 ;;
esac
[ -n "$missing" ] || exit 0

install="apt-get install -y --no-install-recommends$missing"
if [ "$(id -u)" != 0 ] || ! command_is_there apt-get; then
    echo "Missing:$missing. On Debian or Ubuntu type:"
    echo "    sudo $install"
    exit 1
fi
echo "installing:$missing"
log=$(mktemp)
export DEBIAN_FRONTEND=noninteractive
if ! { apt-get update && $install; } >"$log" 2>&1; then
    tail -n 20 "$log"
    rm -f "$log"
    echo "need.sh: '$install' failed" >&2
    exit 1
fi
rm -f "$log"
