#!/usr/bin/env bash
# The examples on the pages run (tests/docs/pages.py), and what the pages name exists.
. "${SONDE_TEST_DIR:?}/cli/lib.sh"
root=$(cd "$SONDE_TEST_DIR/.." && pwd)
command -v cc >/dev/null && command -v pkg-config >/dev/null || exit 77
pages() {
    python3 -B "$root/tests/docs/pages.py" "$@" || fail "pages.py $*"
}

pages check "$sonde"

# Every page runs in a folder of its own, with small data sets, an image and the job of jobs.md.
mkdir pc
printf 'Name: sonde\nDescription: -\nVersion: 0\nCflags: -I%s/include\nLibs: -L%s -Wl,-rpath,%s -lsonde\n' \
    "$root" "$SONDE_BIN/../lib" "$SONDE_BIN/../lib" >pc/sonde.pc
export PATH=$SONDE_BIN:$PATH PKG_CONFIG_PATH=$work/pc SONDE_DATA=$work/data
for set in fashion-mnist mnist; do
    run 0 "$sonde" data synth --out "data/$set" --train 640 --test 200 --quiet
done
run 0 "$sonde" train --epochs 1 --record recorded --record-every 20 --quiet
for page in README guide python jobs demos recording runs rules own_rules tensors; do
    mkdir -p "$page/runs"
    cp "$images/trousers.jpg" "$page"
    cp -r recorded "$page/runs/first"
    pages files docs/jobs.md "$page"
    file=docs/$page.md
    [ -f "$root/$file" ] || file=$page.md
    pages run "$file" "$page"
done
