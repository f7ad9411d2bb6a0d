#!/usr/bin/env bash
# Help, version, manual pages and completion, all from the option tables; and what is not
# understood.
. "$(dirname "$0")/lib.sh"

commands=(watch check train eval predict tensors compile ls show tail query diff export verify plot program
    "rules list" "rules show" rules stop checkpoint send "demo list" demo "data fetch" "data synth" "data info" manual)

run 0 "$sonde" --help
cp "$out" help
for command in "${commands[@]}"; do
    # shellcheck disable=SC2086
    run 0 "$sonde" $command --help
    { echo; echo "--- $command"; cat "$out"; } >>help
    stderr_is ""
    # shellcheck disable=SC2086
    run 0 "$sonde" $command -h
    same "$out" <(sed -n "/^--- $command\$/,/^--- /p" help | sed '1d;/^---/,$d')
done
same help "$golden/help.txt"

# help of a command and of a group of commands; lines of prose fit a terminal
run 0 "$sonde" help data synth
same "$out" <("$sonde" data synth --help)
for group in "data --help" "help data" "data -h"; do
    # shellcheck disable=SC2086
    run 0 "$sonde" $group
    same "$out" <(printf 'Usage: sonde data COMMAND [OPTION]... [ARGUMENT]...\n\nCommands:\n'
                  grep '^  data ' help)
done
run 2 "$sonde" help trian
stderr_is "sonde: error: unknown command 'trian' (expected train); 'sonde --help' lists them"
! grep -vE '^ {2,}(-|    --)' help | grep -E '^.{90}' >&2 || fail "long lines of help"
! sed -n '/^Examples:$/,/^---/p' help | grep -vE '^  |^Examples:$|^---|^$' >&2 ||
    fail "examples that are not indented"

run 0 "$sonde" help
same "$out" <(sed '/^---/,$d' "$golden/help.txt" | sed '$d')
run 2 "$sonde" # alone: the overview, as an error
[ ! -s "$out" ] || fail "the overview of an error went to stdout"
same "$err" <(sed '/^---/,$d' "$golden/help.txt" | sed '$d')
run 0 "$sonde" --version
grep -qE '^sonde [0-9]+\.[0-9]+' "$out" || fail "no version: $(cat "$out")"

# every option of the help stands in the manual page and in both completions
run 0 "$sonde" manual --completion bash
cp "$out" bash
bash -n bash || fail "the completion for bash is no bash"
run 0 "$sonde" manual --completion zsh
cp "$out" zsh
for command in "${commands[@]}"; do
    # shellcheck disable=SC2086
    run 0 "$sonde" manual $command
    cp "$out" page
    head -1 page | grep -qF ".TH \"SONDE $command\" 1" || fail "no manual page of $command"
    # shellcheck disable=SC2086
    run 0 "$sonde" $command --help
    for option in $(grep -oE '^  (-., |    )--[a-z-]+' "$out" | grep -oE -- '--[a-z-]+$'); do
        [ "$option" = --help ] && continue
        grep -qF -- "$(printf %s "$option" | sed 's/-/\\-/g')" page ||
            fail "$command: $option is not in the manual page"
        grep -qF -- " $option" bash || fail "$command: $option is not in bash's completion"
        [[ $command == data* ]] || grep -qF -- "'$option" zsh ||
            fail "$command: $option is not in zsh's completion"
    done
done
run 0 "$sonde" manual
head -1 "$out" | grep -qF '.TH SONDE 1' || fail "no manual page of the whole"
mkdir pages
run 0 "$sonde" manual --out pages
[ "$(find pages -name '*.1' | wc -l)" -eq $((${#commands[@]} + 1)) ] ||
    fail "pages: $(ls pages)"

# one letter has one meaning, and one option one letter, in all commands
grep -oE '^  -., --[a-z-]+' help | sort -u >letters
for part in 1 2; do
    twice=$(tr -d , <letters | awk -v part=$part '{ print $part }' | sort | uniq -d)
    [ -z "$twice" ] || fail "more than one meaning: $twice; $(cat letters)"
done
# and an option takes a value everywhere or nowhere
twice=$(grep -oE -- '--[a-z-]+( [A-Za-z[]+)?( |$)' <(grep -E '^  (-., |    )--' help) |
    awk '{ print $1, NF > 1 ? "value" : "flag" }' | sort -u | cut -d' ' -f1 | uniq -d)
[ -z "$twice" ] || fail "both a flag and not: $twice"

check() { # LINE COMMAND...
    local line=$1
    shift
    run 2 "$sonde" "$@"
    stderr_is "sonde: error: $line"
    [ ! -s "$out" ] || fail "$*: an error that writes to stdout"
}
check "unknown command 'trian' (expected train); 'sonde --help' lists them" trian
check "unknown command 'xyzzy'; 'sonde --help' lists them" xyzzy
check "data: a word is missing (expected data fetch, data synth, data info)" data
check "data sinth (expected data fetch, data synth, data info)" data sinth
check "train: unknown option '--epochen' (expected --epochs); 'sonde train --help' lists them" \
    train --epochen 3
check "train: unknown option '--xyzzy'; 'sonde train --help' lists them" train --xyzzy
check "tensors: unknown option '-Z'; 'sonde tensors --help' lists them" tensors -Z
check "train: option '--epochs' needs a value" train --epochs
check "--epochs: 'many' (expected a whole number from 0 to 1000000)" train --epochs many
check "--epochs: '-1' (expected a whole number from 0 to 1000000)" train --epochs=-1
check "--threads: '4294967297' (expected a whole number from 0 to 1024)" train -t 4294967297
check "--batch-size: '0' (expected a whole number from 1 to 2147483647)" eval --batch-size 0
check "--seed: '9223372036854775808' (expected a whole number from 0 to 9223372036854775807)" \
    train --seed 9223372036854775808
check "--learning-rate: 'nan' (expected a finite number)" train --learning-rate nan
check "train: unexpected argument 'b'" train a b
check "eval: unexpected argument 'b'" eval a b
check "predict needs images, or --prompt TEXT" predict
check "data fetch: expected NAME" data fetch
check "--format: 'xml' (expected text or json)" ls none --format xml
check "ls: an argument is empty (expected RUN [TENSORS])" ls ""
check "--record: is empty (expected a run)" train --record ""
check "--data: is empty (expected a folder or a file)" train -d ""
check "--report: is empty (expected a file)" rules none --report ""
check "--completion: 'fish' (expected bash or zsh)" manual --completion fish
check "manual: unknown command 'trian'" manual trian
check "rules list: 'trian' (expected schedule)" rules list trian
