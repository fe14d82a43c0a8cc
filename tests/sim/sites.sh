#!/bin/sh
# sites.sh PROGRAM SITES: which places of the library that allocate, or call the system, test_sweep has reached.
# SPDX-License-Identifier: MIT
#
# PROGRAM is test_sweep, compiled without optimisation so that every call has a line of its own; SITES is what it wrote for
# SWEEP_SITES. A place is a line of a room. Prints how many there are and how many were reached, and the others; fails if there is one
# among those that is not in the list below, which says why it cannot be reached.
set -eu
program=$1 sites=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
calls='random|host|interfaces|route|resolve|listen|accept|connect|connected|tune|send|recv|poller|watch|wait'
calls="$calls|waker|timer|spawn|thread|monitor"

# Return addresses: the line before. What gci_strdup allocates counts where it is called.
sort -u -k 2,4 "$sites" | awk '{ print $2, $3, $4 }' | sort -u >"$work/all"
for kind in alloc system; do
    awk -v alloc=$kind '($1 == "alloc") == (alloc == "alloc") { print $2; print $3 }' "$work/all" |
        while read -r at; do printf '%#x\n' $((at - 1)); done | addr2line -f -s -e "$program" | paste - - - - |
        awk -v kind=$kind '{ print kind, $1 == "gci_strdup" ? $4 : $2 }' | sed 's/ (discriminator.*//'
done | sort -u >"$work/reached"

grep -nE '\bgci_(alloc|realloc|strdup)\(' ./*.c | grep -vE '^\./sys\.c:|:GCI ' | sed 's,^\./\([^:]*:[0-9]*\):.*,alloc \1,' >"$work/there"
grep -nE "sys->($calls)\\(" ./*.c | sed 's,^\./\([^:]*:[0-9]*\):.*,system \1,' >>"$work/there"
sort -u "$work/there" >"$work/sorted"
for kind in alloc system; do
    there=$(grep -c "^$kind " "$work/sorted") reached=$(comm -12 "$work/sorted" "$work/reached" | grep -c "^$kind ")
    echo "$kind: $reached of $there places reached"
done

# room, the line that calls, why not
cat >"$work/known" <<'EOF'
calls.c|span = gci_alloc(|has more than 64 ranks; without memory overlaps are not seen, which is no error
life.c|(down = gci_realloc(c->env, c->down|survivors have to add more than 64 links
life.c|grown = gci_realloc(c->env, c->losses|more than 16 links of the backbone have to be lost for good
link.c|o->sys->watch(o->sys, o->poller, link->fd, 0, 0)|only takes back, which cannot fail
tree.c|gci_alloc(env, 3 * (nodes + clusters)|no job calls gci_tree_over_clusters; unit/test_tree has it fail
tree.c|gci_subtree *sub = gci_alloc(|no job calls gci_tree_is_ordered; unit/test_tree has it fail
wide.c|w->offset = gci_alloc(|all that jobs call has offsets with its sizes
EOF
unknown=0
comm -23 "$work/sorted" "$work/reached" >"$work/missed"
while read -r kind place; do
    text=$(sed -n "${place#*:}p" "${place%:*}" | sed 's/^ *//') why=
    while IFS='|' read -r room line reason; do
        case "${place%:*} $text" in "$room "*"$line"*) why=$reason ;; esac
    done <"$work/known"
    echo "$kind $place: ${why:-NOT REACHED: $text}"
    [ -n "$why" ] || unknown=$((unknown + 1))
done <"$work/missed"
[ "$unknown" -eq 0 ]
