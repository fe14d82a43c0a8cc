#!/bin/sh
# coll_tables.sh LOG...: the tables of docs/collectives.md from what bench_coll.sh printed. Of a row that stands in several, the last.
# SPDX-License-Identifier: MIT
exec awk '
function factors(   i, text) {                          # how many times as long the MPIs take
    for (i = 1; i <= NF; i++)
        if ($i == "openmpi" || $i == "mpich")
            text = text (text == "" ? "; " : ", ") ($(i + 1) == "failed" ? "failed" : substr($(i + 2), 2))
    return text
}
match($0, /^[0-9]+ sites, (pairs|uplinks), [0-9]+ B, [0-9]+ ranks each/) {
    split($0, w, /[ ,]+/)
    if (!(w[1] " " w[3] in title)) bed[++beds] = w[1] " " w[3]
    title[w[1] " " w[3]] = w[1] " × " w[6] ", " w[3]
}
match($0, /^[0-9]+ sites, (pairs|uplinks), [0-9]+ B: [a-z_]+/) {
    split(substr($0, 1, RLENGTH), w, /[ ,:]+/)
    $0 = substr($0, RLENGTH + 1)
    void = / void( |$)/ ? "‡" : ""
    at = w[4] SUBSEP w[6] SUBSEP w[1] " " w[3]
    if (!(w[6] in listed)) { listed[w[6]] = 1; operation[++operations] = w[6] }
    cell[at] = w[4] == 1 ? sprintf("%.2f ms%s, %s (%s)%s", $2, void, $3, $5, factors()) \
                         : sprintf("%.2f ms%s, %s (%.2f)%s", $3, void, $4, $2 / $1, factors())
    has[w[4] SUBSEP w[6]] = 1
}
function table(bytes, name,    o, b, at) {
    printf "| %s |", name
    for (b = 1; b <= beds; b++) printf " %s |", title[bed[b]]
    printf "\n|"
    for (b = 0; b <= beds; b++) printf "---|"
    print ""
    for (o = 1; o <= operations; o++) {
        if (!((bytes SUBSEP operation[o]) in has)) continue
        printf "| %s |", operation[o]
        for (b = 1; b <= beds; b++) printf " %s |", cell[bytes SUBSEP operation[o] SUBSEP bed[b]]
        print ""
    }
    print ""
}
END { table(1, "1 byte"); table(65536, "64 KiB") }' "$@"
