#!/usr/bin/env bash
# test_dist.sh: the two files of dist/, the header in C++, its documentation, and what `make install` puts where.
# SPDX-License-Identifier: MIT
# time limit: 300 s
set -u
cd "$(dirname "$0")/../.." || exit 1
here=tests/dist
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
passed=0 failed=0

# check WHAT COMMAND...: the command succeeds and says nothing.
check() {
    local what=$1 said
    shift
    if said=$("$@" 2>&1) && [[ -z $said ]]; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        printf 'FAIL: %s\n%s\n' "$what" "$said" | head -n 30
    fi
}

make -s dist >/dev/null || { echo 'FAIL: make dist'; echo '0 passed, 1 failed'; exit 1; }
cp dist/gridcomm.h dist/gridcomm.c "$here/app.c" "$here/header.cc" "$dir"
cp gridcomm.h "$dir/original.h"
# A world of one, whatever job this test itself runs in.
for name in $(compgen -e | grep -E '^(GRIDCOMM_|RANK$|WORLD_SIZE$|MASTER_|PMI_|SLURM_)'); do unset "$name"; done
cd "$dir" || exit 1

check 'dist/gridcomm.h is the header' cmp gridcomm.h original.h
check 'no local include but the header' bash -c '! grep -nE "^[[:space:]]*#[[:space:]]*include[[:space:]]*\"" gridcomm.c | grep -v "\"gridcomm.h\""'

only_gc() { nm -g --defined-only "$1" | awk 'NF == 3 && $3 !~ /^gc_/ { print "exported: " $3; bad = 1 } END { exit bad }'; }
all_gc() { # what the header declares is what the object has
    diff <(grep -oE '^[a-z][^(]*\bgc_[a-z0-9_]+\(' gridcomm.h | grep -v typedef | grep -oE 'gc_[a-z0-9_]+\(' | tr -d '(' | sort -u) \
         <(nm -g --defined-only "$1" | awk 'NF == 3 { print $3 }' | sort -u)
}
for cc in gcc clang; do
    command -v $cc >/dev/null || continue
    [[ $cc == gcc ]] && echo '#include <stdio.h>' | $cc -m32 -E - >/dev/null 2>&1 &&
        check "$cc, all warnings, 32 bits" $cc -m32 -std=c11 -O2 -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Werror -c gridcomm.c -o 32.o
    check "$cc, two files, no option" $cc app.c gridcomm.c -lpthread -o app-$cc
    check "$cc: a world of one runs" timeout 20 ./app-$cc
    check "$cc, all warnings" $cc -std=c11 -O2 -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Werror -c gridcomm.c -o $cc.o
    check "$cc: exports gc_ names alone" only_gc $cc.o
    check "$cc: exports what the header declares" all_gc $cc.o
done
for cxx in g++ clang++; do
    command -v $cxx >/dev/null || continue
    check "$cxx: the header" $cxx -std=c++11 -Wall -Wextra -Wpedantic -Werror -c header.cc -o header-$cxx.o
    [[ ! -f gcc.o ]] || check "$cxx: a program" $cxx header-$cxx.o gcc.o -lpthread -o header-$cxx
    [[ ! -f gcc.o ]] || check "$cxx: gc_options_init" timeout 20 ./header-$cxx
done
cd "$OLDPWD" || exit 1

check 'every public function is documented' awk -f $here/doc_check.awk gridcomm.h
sed '/^int gc_barrier/i int gc_planted(gc_comm *);\n' gridcomm.h >"$dir/planted.h"
check 'a function without documentation is found' bash -c "! awk -f $here/doc_check.awk '$dir/planted.h' >/dev/null"

check 'make install' bash -c "make -s BUILD='${TOP:-build}' CC='${CC:-cc}' SAN='${SAN:-}' install PREFIX=/usr DESTDIR='$dir/root' >/dev/null"
for file in include/gridcomm.h lib/libgridcomm.a lib/pkgconfig/gridcomm.pc bin/gcrun; do
    check "installed: $file" test -s "$dir/root/usr/$file"
done
if [[ -z ${SAN:-} ]]; then
    check 'a program with the installed library' ${CC:-cc} -I"$dir/root/usr/include" $here/app.c -L"$dir/root/usr/lib" -lgridcomm -pthread -o "$dir/app"
    check 'it runs' timeout 20 "$dir/app"
fi

echo "$passed passed, $failed failed"
[[ $failed == 0 ]]
