#!/usr/bin/env bash
# Unpacks the Debian packages into an empty root and tries them there: the command, and a C
# program that is built against them with pkg-config and with CMake. Where dpkg can install
# into a root of its own, it does.
#
#     try_deb.sh SONDE.deb SONDE_DEV.deb
set -eu
runtime=$1
development=$2
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() {
    echo "error: $*" >&2
    exit 1
}

root=$work/root
dpkg-deb -c "$runtime" >"$work/runtime"
dpkg-deb -c "$development" >"$work/development"
grep -q 'libsonde\.so\.0$\|libsonde\.so\.0 ->' "$work/runtime" || fail "package sonde: no libsonde.so.0"
grep -q '/sonde/sonde-lua.so$' "$work/runtime" || fail "package sonde: no sonde-lua.so"
grep -q '\.h$' "$work/runtime" && fail "package sonde: holds headers"
for file in include/sonde/error.h libsonde.so sonde.pc sondeConfig.cmake; do
    grep -q "$file" "$work/development" || fail "package sonde-dev: no $file"
done
dpkg-deb -f "$runtime" Depends | grep -q libc6 || fail "package sonde: no libc6 in Depends"
dpkg-deb -f "$development" Depends | grep -q '^sonde (= ' || fail "package sonde-dev: not of one sonde"

install_both() { # into a root with a database of its own
    mkdir -p "$root/var/lib/dpkg/info" "$root/var/lib/dpkg/updates" "$root/var/lib/dpkg/triggers"
    : >"$root/var/lib/dpkg/status"
    dpkg --root="$root" --force-not-root --force-depends --force-script-chrootless --no-triggers \
        --log=/dev/null -i "$runtime" "$development" >"$work/log" 2>&1 &&
        dpkg --root="$root" -s sonde-dev >>"$work/log" 2>&1
}
if ! install_both; then
    rm -rf "$root"
    dpkg-deb -x "$runtime" "$root"
    dpkg-deb -x "$development" "$root"
fi

libdir=$(dirname "$(find "$root" -name libsonde.so)")
! grep -rl "$root\|$work" "$root/usr" >/dev/null || fail "a file has the path of its root"
export PKG_CONFIG_PATH=$libdir/pkgconfig LD_LIBRARY_PATH=$libdir
for pc in "$libdir"/pkgconfig/*.pc; do
    name=$(basename "$pc" .pc)
    # shellcheck disable=SC2046
    cc -std=c17 -Wall -Werror -o "$work/$name" "$here/foreign/main.c" -Wl,--no-as-needed \
        $(pkg-config --cflags --libs "$name")
    [ "$("$work/$name")" = SONDE_ENOMEM ] || fail "$name with pkg-config: wrong answer"
done
cmake -S "$here/foreign" -B "$work/build" -DCMAKE_PREFIX_PATH="$root/usr" >"$work/log" 2>&1 &&
    cmake --build "$work/build" >>"$work/log" 2>&1 ||
    { cat "$work/log"; fail "the foreign program does not build with CMake"; }
for program in "$work"/build/foreign*; do
    [ -f "$program" ] || continue
    [ "$("$program")" = SONDE_ENOMEM ] || fail "$program: wrong answer"
done

# shellcheck disable=SC2046
cc -std=c17 -o "$work/loop" "$here/outside/loop.c" $(pkg-config --cflags --libs sonde)
unset LD_LIBRARY_PATH # the command finds its libraries without help
cd "$work"
LD_LIBRARY_PATH=$libdir ./loop mine >/dev/null || fail "the program that records does not run"
"$root/usr/bin/sonde" ls mine >"$work/log" || fail "the command does not run"
grep -q weight "$work/log" || { cat "$work/log"; fail "sonde ls: no weight"; }
