# demos.sh - tries demos: every network goes wrong as it says, the right rule names the right
# tensor, and of the network put right no rule says anything. The status of `sonde demo` tells
# whether the rules said what they should. Sourced behind lib.sh by tests that share the work.
#
#     try_demos K N       the K-th of N parts of all demos

try_demo() {
    run 0 "$sonde" demo "$1" --record wrong
    [ ! -s "$err" ] || fail "$1: $(cat "$err")"
    rule=$(sed -n 's/^  rule  *//p' "$out")
    if [ -n "$rule" ]; then
        grep -q "^  $rule  " "$out" || fail "$1: no finding of $rule: $(cat "$out")"
        [ -s wrong/findings/"$rule".jsonl ] || fail "$1: findings are not kept"
    else
        grep -qx 'The rules found nothing.' "$out" || fail "$1: $(cat "$out")"
    fi
    run 0 "$sonde" demo "$1" --fixed --record right --quiet
    grep -qx 'The rules found nothing.' "$out" || fail "$1 --fixed: $(cat "$out")"
    rm -rf wrong* right*
}

try_demos() {
    local demos
    run 0 "$sonde" demo list
    [ "$(wc -l <"$out")" -ge 15 ] || fail "few demos: $(cat "$out")"
    demos=$(awk -v k="$1" -v n="$2" 'NR % n == k - 1 { print $1 }' "$out")
    # where every step costs ten, a few that differ in what they do
    [ -z "${SONDE_SLOWED_BY-}" ] ||
        demos=$(echo "$demos" | grep -xE 'healthy|overfit|frozen_layer|similar_across_runs')
    for demo in $demos; do
        try_demo "$demo"
    done
}
