#!/usr/bin/env bash
# No function of the public headers crashes, whatever its arguments (api_walk.py).
. "${SONDE_TEST_DIR:?}/cli/lib.sh"
[ -z "${SONDE_SLOWED_BY-}" ] || { echo "the release build walks"; exit 77; }
command -v cc >/dev/null || { echo "there is no cc"; exit 77; }
root=$(cd "$SONDE_TEST_DIR/.." && pwd)
api=$root/tests/api
lib=$SONDE_BIN/../lib

python3 -B "$api/api_walk.py" "$root/include" "$api/api_makers.h" >walk.c || fail "api_walk.py"
[ "$(grep -o '{"sonde_[a-z_0-9]*"' walk.c | sort -u | wc -l)" -gt 400 ] ||
    fail "api_walk.py finds too few functions"
cc -std=gnu17 -w -O0 -I"$root/include" walk.c -o walk -L"$lib" -Wl,-rpath,"$lib" \
    -lsonde_plot -lsonde_nn -lsonde || fail "the walk does not build"
HOME=$work XDG_CACHE_HOME=$work ./walk >walk.txt 2>walk.log || { cat walk.log walk.txt; fail "see above"; }

# A crash and a success that should not be are found.
cp -r "$root/include" planted
cat >planted/sonde/planted.h <<'END'
#include <sonde/error.h>
SONDE_API sonde_err sonde_planted_crash(int *value, sonde_diag *diag);
SONDE_API sonde_err sonde_planted_success(char **out, sonde_diag *diag);
SONDE_API double sonde_planted_good(const double *value);
END
cat >planted.c <<'END'
#include <sonde/planted.h>
#include <stddef.h>
sonde_err sonde_planted_crash(int *value, sonde_diag *diag)
{
    return diag != NULL && *value == 0 ? SONDE_EINVAL : SONDE_EIO;
}
sonde_err sonde_planted_success(char **out, sonde_diag *diag)
{
    (void)diag;
    return out != NULL ? SONDE_EIO : SONDE_OK;
}
double sonde_planted_good(const double *value)
{
    return value != NULL ? *value : 0.0;
}
END
python3 -B "$api/api_walk.py" planted "$api/api_makers.h" >walk.c || fail "api_walk.py, planted"
cc -std=gnu17 -w -O0 -Iplanted walk.c planted.c -o walk -L"$lib" -Wl,-rpath,"$lib" \
    -lsonde_plot -lsonde_nn -lsonde || fail "the planted walk does not build"
cat >wanted.txt <<'END'
sonde_planted_crash: value NULL: crashes
sonde_planted_crash: everything but diag NULL: crashes
sonde_planted_success: out NULL: succeeds
sonde_planted_success: everything but diag NULL: succeeds
sonde_planted_success: everything NULL: succeeds
10 calls, 5 failed
END
rm -rf run
run 1 ./walk sonde_planted
same wanted.txt "$out"
