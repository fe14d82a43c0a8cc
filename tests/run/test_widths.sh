#!/bin/bash
# test_widths.sh: jobs in which every second rank is a program of 32 bits: all collectives, and what a model chooses.
# SPDX-License-Identifier: MIT
# time limit: 300 s
set -u
. "$(dirname "$0")/common.sh"
top=$here/../..
wide=$build/tests/net/all_collectives
need "$build/gcrun" "$build/gcbench" "$wide"
[ "$(uname -m)" = x86_64 ] || { good 'nothing to mix on this machine'; close; }
echo '#include <stdio.h>' | "${CC:-cc}" -m32 -E - >/dev/null 2>&1 || { skip 'two widths' "no headers of 32 bits: gcc-multilib"; close; }

narrow="${CC:-cc} -m32 -std=c11 -O0 -pthread -I$top -I$top/tests/net"
compile() { $narrow -c "$top"/[a-z]*.c 2>err && ar rc lib.a ./*.o; }
check 'the library compiles for 32 bits' compile
check 'a program of all collectives, too' $narrow -o collectives "$top/tests/net/all_collectives.c" "$top/tools/tool.c" lib.a
check 'gcbench, too' $narrow -o bench "$top"/tools/gcbench*.c "$top/tools/tool.c" lib.a -lm

emulator=               # of a kernel that runs 64 bits alone
echo 'int main(void) { return 0; }' >nothing.c
check 'the smallest program of 32 bits' $narrow -o nothing nothing.c
./nothing 2>/dev/null || emulator=qemu-i386
$emulator ./nothing 2>err || { skip 'two widths' 'neither the kernel nor qemu-i386 runs 32 bits: qemu-user'; close; }
cat >every_second <<END
#!/bin/sh
narrow=\$1 wide=\$2
shift 2
case \$GRIDCOMM_RANK in *[13579]) exec $emulator "\$narrow" "\$@" ;; esac
exec "\$wide" "\$@"
END
chmod +x every_second
job() { timeout -k 5 60 "$build/gcrun" "$@" >out 2>err; }
check 'all collectives, 6 ranks of one cluster' job -n 6 ./every_second ./collectives "$wide"
two_clusters 6
check 'all collectives, 6 ranks of two clusters' job -n 6 -H hosts ./every_second ./collectives "$wide"
bench() { job -n 6 -H hosts ./every_second ./bench "$build/gcbench" "$@"; }
check 'a model is measured' bench --fit model --seconds 20
check 'its choices, made for it alike' bench --model model --choose --sizes 1,64K,1M --repeat 1-2 --seconds 0.1
close
