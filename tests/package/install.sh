#!/usr/bin/env bash
# Installs a build into an empty prefix, moves that prefix, and builds and runs a foreign
# program against it: with pkg-config, with CMake, and once a library. Then the Debian packages
# (try_deb.sh). tools/package makes the wheel too, and tries it (try_wheel.sh).
#
#     install.sh BUILD_DIR CMAKE
set -eu
build=$1
cmake=$2
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() {
    echo "error: $*" >&2
    exit 1
}

"$cmake" --install "$build" --prefix "$work/first" >"$work/log" 2>&1 ||
    { cat "$work/log"; fail "cmake --install failed"; }
mv "$work/first" "$work/prefix" # nothing installed may remember where it was put
libdir=$(dirname "$(find "$work/prefix" -name libsonde.so)")
export PKG_CONFIG_PATH=$libdir/pkgconfig LD_LIBRARY_PATH=$libdir

for pc in "$libdir"/pkgconfig/*.pc; do
    name=$(basename "$pc" .pc)
    # shellcheck disable=SC2046
    cc -std=c17 -Wall -Werror -o "$work/$name" "$here/foreign/main.c" -Wl,--no-as-needed \
        $(pkg-config --cflags --libs "$name")
    [ "$("$work/$name")" = SONDE_ENOMEM ] || fail "$name with pkg-config: wrong answer"
done

"$cmake" -S "$here/foreign" -B "$work/build" -DCMAKE_PREFIX_PATH="$work/prefix" \
    >"$work/log" 2>&1 || { cat "$work/log"; fail "find_package(sonde) failed"; }
"$cmake" --build "$work/build" >"$work/log" 2>&1 ||
    { cat "$work/log"; fail "the foreign program does not build with CMake"; }
for program in "$work"/build/foreign*; do
    [ -f "$program" ] || continue
    [ "$("$program")" = SONDE_ENOMEM ] || fail "$program: wrong answer"
done

# Programs as users write them, by the headers alone, in C and in C++: a loop that is recorded, a
# loop that is judged, a run that is read while it is written, an export, a rule.
outside=$here/outside
for program in loop judge follow export; do
    # shellcheck disable=SC2046
    cc -std=c17 -Wall -Wextra -Werror -o "$work/$program" "$outside/$program.c" $(pkg-config --cflags --libs sonde)
    # shellcheck disable=SC2046
    ! command -v c++ >/dev/null ||
        c++ -std=c++17 -Wall -Werror -fsyntax-only -x c++ "$outside/$program.c" $(pkg-config --cflags sonde)
done
# shellcheck disable=SC2046
cc -std=c17 -Wall -Wextra -Werror -shared -fPIC -o "$work/small_gradient.so" "$outside/small_gradient.c" \
    $(pkg-config --cflags sonde)
(
    cd "$work"
    [ "$(./loop mine)" = "weight 3.000" ] || fail "loop: wrong answer"
    ./judge >judged
    grep -q '^ExplodingTensor at step .* of line.weight$' judged || { cat judged; fail "judge: no finding"; }
    [ "$(./follow mine | wc -l)" = 50 ] || fail "follow: not every step"
    ./export mine mine.csv
    [ "$(wc -l <mine.csv)" = 151 ] || fail "export: wrong number of lines"
    "$work/prefix/bin/sonde" rules mine --plugin ./small_gradient.so --rules SmallGradient --no-save >judged || :
    grep -q 'SmallGradient: gradient/line.weight' judged || { cat judged; fail "small_gradient: no finding"; }
)

# Every program that was installed finds its libraries without help.
unset LD_LIBRARY_PATH
for program in "$work/prefix/bin"/*; do
    [ -x "$program" ] || continue
    ! ldd "$program" | grep 'not found' || fail "$program: a library is not found"
done

# The installed command finds the Python that some formats need.
for format in npz tensorboard; do
    (cd "$work" && env -u PYTHONPATH "$work/prefix/bin/sonde" export mine "mine.$format" --format $format) \
        >"$work/log" 2>&1 || { cat "$work/log"; fail "$format: no export"; }
done

# The rule to copy is built as it says, and runs in the host that was installed with libsonde.
rules=$(dirname "$(find "$work/prefix" -name outlier_element.c)")
cp "$rules"/*.c "$rules"/*.lua "$work"
line=$(sed -n 's/^ [*]  *\(cc .*\)$/\1/p' "$work/outlier_element.c")
(cd "$work" && sh -c "$line") || fail "the rule in C does not build: $line"
(cd "$work" && "$work/prefix/bin/sonde" rules list --plugin ./outlier_element.so \
    --plugin ./quiet_layer.lua) >"$work/log" || fail "rules of files do not load"
grep -q '^OutlierElement ' "$work/log" && grep -q '^QuietLayer ' "$work/log" ||
    { cat "$work/log"; fail "rules of files are not listed"; }
ldd "$(find "$work/prefix" -name sonde-lua.so)" | grep 'not found' &&
    fail "sonde-lua.so: a library is not found"

command -v dpkg-deb >/dev/null || exit 0
(cd "$work" && "$(dirname "$cmake")/cpack" --config "$build/CPackConfig.cmake" -G DEB) >"$work/log" 2>&1 ||
    { cat "$work/log"; fail "cpack failed"; }
"$here/try_deb.sh" "$work"/sonde_*.deb "$work"/sonde-dev_*.deb
