#!/bin/sh
# amalgamate.sh DIR ROOM.c...: writes the library as two files, DIR/gridcomm.h and DIR/gridcomm.c.
# SPDX-License-Identifier: MIT
#
# The rooms are joined in the order given, after gridcomm_int.h. What they share becomes static (GCI), so that the
# object file exports the public functions and nothing else. Comments stay: the copy in a user's project is to be read.
set -eu
dir=$1
shift
[ $# -gt 0 ] || { echo 'amalgamate.sh: no rooms' >&2; exit 1; }
version=$(awk '/define GRIDCOMM_VERSION_/ { v = v s $3; s = "." } END { print v }' gridcomm.h)

mkdir -p "$dir"
cp gridcomm.h "$dir/gridcomm.h"
{
    cat <<END
/* gridcomm $version, amalgamated: the whole library in one source. Compile it with your program:
 *
 *     cc app.c gridcomm.c -lpthread
 *
 * Made from: $*
 *
END
    sed 's/^\(.\)/ * \1/; s/^$/ */' LICENSE
    cat <<'END'
 */
#define GCI static __attribute__((unused))
END
    for file in gridcomm_int.h "$@"; do
        printf '\n/* ======== %s ======== */\n\n' "$file"
        awk -v file="$file" '
            /^[ \t]*#[ \t]*include[ \t]*"gridcomm_int\.h"/ { next }
            /^[ \t]*#[ \t]*include[ \t]*"gridcomm\.h"/ { if (file != "gridcomm_int.h") next }
            /^[ \t]*#[ \t]*include[ \t]*"/ && !/"gridcomm\.h"/ {
                print "amalgamate.sh: " file ": " $0 ": cannot be joined" | "cat >&2"; bad = 1
            }
            { print }
            END { exit bad }' "$file"
    done
} > "$dir/gridcomm.c.new"
mv "$dir/gridcomm.c.new" "$dir/gridcomm.c"
