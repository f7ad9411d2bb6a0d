#!/usr/bin/env bash
# Credentials as the AWS tools find them: a process, the AWS command line for roles and
# single sign-on, a web token, a container, an instance; new ones before they expire; and messages.
. "$(dirname "$0")/lib.sh"
run=s3://bucket/runs/a
train $run --out out-1
unset AWS_ACCESS_KEY_ID AWS_SECRET_ACCESS_KEY
mkdir .aws

config() { # the lines of ~/.aws/config
    printf '%s\n' "$@" >.aws/config
}

# The bucket can be listed with these credentials.
good() { # PROFILE
    run 0 env AWS_PROFILE="$1" "$sonde" ls $run --names
}

bad() { # PROFILE EXPECTED
    run 2 env AWS_PROFILE="$1" "$sonde" ls $run --names
    grep -qF "$2" "$err" || fail "profile $1: $(cat "$err")"
    [ "$(wc -l <"$err")" -eq 1 ] || fail "profile $1: more than a line: $(cat "$err")"
}

logged() { # a request that the store has seen
    store GET log >log
    grep -q "$1" log || fail "no $1: $(cat log)"
}

# --- a process: words as of a shell, without a shell; nothing of it is shown
mkdir 'a folder'
cat >'a folder/give' <<'END'
#!/bin/sh
echo "a secret on stderr" >&2
[ "$*" = 'two words $HOME *' ] || exit 3
[ ! -t 0 ] && ! read -r line || exit 4
printf '{"Version": 1, "AccessKeyId": "AKIATEST", "SecretAccessKey": "secret/of+test"}\n'
END
printf '#!/bin/sh\necho hidden\necho hidden >&2\nexit 7\n' >fails
printf '#!/bin/sh\necho hidden\n' >prints
printf '#!/bin/sh\nprintf %%s "{\\"AccessKeyId\\": \\"a\\", \\"SecretAccessKey\\": \\"b\\", \\"Expiration\\": \\"2020-01-01T00:00:00Z\\"}"\n' >expired
chmod +x 'a folder/give' fails prints expired
config '[profile process]' "credential_process = \"$work/a folder/give\" 'two words' \$HOME *" \
    '[profile fails]' "credential_process = $work/fails" '[profile prints]' "credential_process = $work/prints" \
    '[profile none]' 'credential_process = /no/such/program' '[profile open]' 'credential_process = "x' \
    '[profile expired]' "credential_process = $work/expired"
good process
[ ! -s "$err" ] || fail "the program's errors are shown: $(cat "$err")"
bad fails "'$work/fails' ends with status 7"
grep -q hidden "$err" && fail "the program's output is shown: $(cat "$err")"
bad prints 'gives something other than JSON'
grep -q hidden "$err" && fail "the program's output is shown: $(cat "$err")"
bad none "'/no/such/program' cannot be run: No such file or directory"
bad open 'the command has an open quote'
bad expired 'gives credentials that expired at 2020-01-01T00:00:00Z'
bad missing "there is no profile 'missing'"

# --- roles and single sign-on: by the AWS command line, which a script stands for
mkdir tools
cat >tools/aws <<'END'
#!/bin/sh
[ "$*" = "configure export-credentials --format process --profile $AWS_PROFILE" ] || exit 3
case $AWS_PROFILE in *logged*) exit 255 ;; esac
printf '{"Version": 1, "AccessKeyId": "AKIATEST", "SecretAccessKey": "secret/of+test"}\n'
END
chmod +x tools/aws
config '[profile role]' 'role_arn = arn:aws:iam::1:role/ok' 'source_profile = keys' \
    '[profile env]' 'role_arn = arn:aws:iam::1:role/ok' 'credential_source = Environment' \
    '[profile sso]' 'sso_session = mine' '[profile legacy]' 'sso_start_url = https://x.awsapps.com/start' \
    '[profile logged out]' 'sso_session = mine' '[profile alone]' 'role_arn = arn:aws:iam::1:role/ok' \
    '[profile device]' 'role_arn = arn:aws:iam::1:role/ok' 'source_profile = keys' 'mfa_serial = arn:aws:iam::1:mfa/me'
for profile in role env sso legacy; do
    PATH=$work/tools:$PATH good $profile
done
PATH=$work/tools:$PATH bad 'logged out' "'aws' ends with status 255 (expected the AWS command line 2.12 or newer, and success of: aws sso login; aws configure export-credentials --profile logged out)"
bad alone 'has a role_arn alone'
bad device 'it needs a code of a device (mfa_serial)'
if ! command -v aws >/dev/null; then
    bad role "role of profile role: 'aws' cannot be run: No such file or directory (expected the AWS command line"
fi
# Keys of the environment come before any profile.
run 0 env AWS_ACCESS_KEY_ID=AKIATEST AWS_SECRET_ACCESS_KEY=secret/of+test AWS_PROFILE=alone "$sonde" ls $run --names

# --- keys in a file, of a container and of an instance
printf '[keys]\nAWS_ACCESS_KEY_ID = AKIATEST\naws_secret_access_key = secret/of+test\n' >.aws/credentials
good keys
rm .aws/credentials
run 0 env AWS_CONTAINER_CREDENTIALS_FULL_URI="$AWS_ENDPOINT_URL/_/container" AWS_CONTAINER_AUTHORIZATION_TOKEN='let me' \
    "$sonde" ls $run --names
run 0 env AWS_EC2_METADATA_DISABLED=false AWS_EC2_METADATA_SERVICE_ENDPOINT="$AWS_ENDPOINT_URL/_" "$sonde" ls $run --names

# --- a web token, as in a pod of EKS
echo a-web-token >token
run 0 env AWS_WEB_IDENTITY_TOKEN_FILE=token AWS_ROLE_ARN=arn:aws:iam::1:role/ok AWS_ROLE_SESSION_NAME=pod \
    "$sonde" ls $run --names
logged 'AssumeRoleWithWebIdentity.*RoleSessionName=pod'
run 2 env AWS_WEB_IDENTITY_TOKEN_FILE=token "$sonde" ls $run
grep -q 'there is no role (expected AWS_ROLE_ARN' "$err" || fail "$(cat "$err")"
run 2 env AWS_WEB_IDENTITY_TOKEN_FILE=missing AWS_ROLE_ARN=arn:aws:iam::1:role/ok "$sonde" ls $run
grep -q 'missing: cannot be read, or is empty' "$err" || fail "$(cat "$err")"
echo other >token
run 2 env AWS_WEB_IDENTITY_TOKEN_FILE=token AWS_ROLE_ARN=arn:aws:iam::1:role/ok "$sonde" ls $run
grep -q 'HTTP 400: InvalidIdentityToken' "$err" || fail "$(cat "$err")"

# An endpoint of its own for each service, with a path.
echo a-web-token >token
pod=(AWS_WEB_IDENTITY_TOKEN_FILE=token AWS_ROLE_ARN=arn:aws:iam::1:role/ok)
run 0 env -u AWS_ENDPOINT_URL AWS_ENDPOINT_URL_S3="$AWS_ENDPOINT_URL" AWS_ENDPOINT_URL_STS="$AWS_ENDPOINT_URL/_/sts/" \
    "${pod[@]}" "$sonde" ls $run --names
logged 'POST /_/sts/ '
config '[profile pod]' 'role_arn = arn:aws:iam::1:role/ok' "web_identity_token_file = $work/token" 'services = mine' \
    '[services mine]' 's3 =' "  endpoint_url = $AWS_ENDPOINT_URL" 'sts =' "  endpoint_url = $AWS_ENDPOINT_URL/_/sts"
run 0 env -u AWS_ENDPOINT_URL AWS_PROFILE=pod "$sonde" ls $run --names
logged 'POST /_/sts/ '

# --- a container that refuses, or is elsewhere
run 2 env AWS_CONTAINER_CREDENTIALS_FULL_URI="$AWS_ENDPOINT_URL/_/container" "$sonde" ls $run
grep -q 'credentials of the container: HTTP 403' "$err" || fail "$(cat "$err")"
run 2 env AWS_CONTAINER_CREDENTIALS_FULL_URI=http://example.com/x "$sonde" ls $run
grep -q "'http://example.com/x' (expected https://, or a host of this machine)" "$err" || fail "$(cat "$err")"
run 2 env AWS_ACCESS_KEY_ID=AKIATEST "$sonde" ls $run
grep -q 'AWS_ACCESS_KEY_ID: has no secret' "$err" || fail "$(cat "$err")"

# --- keys that live for 2 seconds, in a run that takes 3: none is refused
store PUT 'life?seconds=2'
store GET log >log
fault slow 'PUT%20runs/long' 6
AWS_PROFILE=pod train s3://bucket/runs/long --out out-2
[ ! -s "$err" ] || fail "writing: $(cat "$err")"
store GET log >log
grep -q REFUSED log && fail "$(grep REFUSED log)"
[ "$(grep -c AssumeRoleWithWebIdentity log)" -ge 2 ] || fail "the keys are not renewed: $(cat log)"
