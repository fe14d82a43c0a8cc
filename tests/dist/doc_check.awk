# doc_check.awk: awk -f doc_check.awk gridcomm.h fails when a public function has no documentation.
# SPDX-License-Identifier: MIT
#
# A function is documented when a comment of its own stands right above it, or when it follows another declaration
# without an empty line and the comment above names it. What returns an int must say "Returns". Functions are found as a
# name gc_... before the first parenthesis of a declaration that begins in the first column.

function declared(line,    head) {
    if (line !~ /^[a-z]/ || line ~ /^(typedef|enum|extern|struct)/ || line !~ /gc_[a-z0-9_]+\(/) return ""
    head = substr(line, 1, index(line, "(") - 1)
    return match(head, /gc_[a-z0-9_]+$/) ? substr(head, RSTART) : ""
}
function names(text, name) { return text ~ ("(^|[^a-z_])" name "([^a-z_]|$)") }
function complain(what) { print FILENAME ":" FNR ": " what; bad = 1 }

/^[ \t]*\/\*/ { comment = ""; inside = 1; fresh = 0 }
inside {
    comment = comment " " $0
    if ($0 ~ /\*\//) { inside = 0; fresh = 1 }
    next
}
/^[ \t]*$/ { comment = ""; fresh = 0; next }
{
    name = declared($0)
    if (name == "") next
    functions++
    if (comment == "" || (!fresh && !names(comment, name))) complain(name " is not documented")
    else if ($1 == "int" && comment !~ /[Rr]eturns/) complain(name ": what does it return?")
    fresh = 0
}
END {
    if (!functions) { print FILENAME ": no function found"; bad = 1 }
    exit bad
}
