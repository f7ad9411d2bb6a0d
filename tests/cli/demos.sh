# demos.sh - tries demos: every network goes wrong as it says, the right rule names the right
# tensor, and of the network put right no rule says anything. The status of `sonde demo` tells
# whether the rules said what they should. Sourced behind lib.sh by tests that share the work.
#
#     try_demos K N       the K-th of N parts of all demos

# What its rule found while it trained is what is found in its record, to the id, and was told then.
same_again() {
    local other=()
    [ -s wrong/findings/"$rule".jsonl ] || fail "$1: findings are not kept"
    grep -oE '^  (step|epoch) +[0-9]+: found: '"$rule" "$out" >/dev/null || fail "$1: not told while it trains: $(cat "$out")"
    cp wrong/findings/"$rule".jsonl live.jsonl
    [ ! -d wrong-other ] || other=(--other wrong-other)
    "$sonde" rules wrong --rules "$rule" "${other[@]}" --format json >"$out" 2>"$err" ||
        [ $? -eq 1 ] || fail "$1: rules: $(cat "$err")" # 0: training goes well, so none stands
    same <(grep -o '"id":"[0-9a-f]*"' live.jsonl | sort -u) <(grep -o '"id":"[0-9a-f]*"' "$out" | sort -u)
}

try_demo() {
    run 0 "$sonde" demo "$1" --record wrong
    [ ! -s "$err" ] || fail "$1: $(cat "$err")"
    rule=$(sed -n 's/^  rule  *//p' "$out")
    if [ -n "$rule" ]; then
        grep -q "^  $rule  " "$out" || fail "$1: no finding of $rule: $(cat "$out")"
        same_again "$1"
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
