#!/usr/bin/env bash
# Credentials as the AWS tools find them: a process, roles, a web token, single sign-on; new
# ones before they expire; and what each message says.
. "$(dirname "$0")/lib.sh"
run=s3://bucket/runs/a
train $run --out out-1
unset AWS_ACCESS_KEY_ID AWS_SECRET_ACCESS_KEY
mkdir -p .aws/sso/cache

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

# --- roles: by a profile, by the environment, by a role that another gives
config '[default]' 'region = us-east-1' '[profile role]' 'role_arn = arn:aws:iam::1:role/ok' 'source_profile = keys' \
    'role_session_name = a session' 'external_id = an id' 'duration_seconds = 900' \
    '[profile chain]' 'role_arn = arn:aws:iam::1:role/ok2' 'source_profile = role' \
    '[profile env]' 'role_arn = arn:aws:iam::1:role/ok' 'credential_source = Environment' \
    '[profile container]' 'role_arn = arn:aws:iam::1:role/ok' 'credential_source = EcsContainer' \
    '[profile instance]' 'role_arn = arn:aws:iam::1:role/ok' 'credential_source = Ec2InstanceMetadata' \
    '[profile forbidden]' 'role_arn = arn:aws:iam::1:role/other' 'source_profile = keys' \
    '[profile loop]' 'role_arn = arn:aws:iam::1:role/ok' 'source_profile = loop2' \
    '[profile loop2]' 'role_arn = arn:aws:iam::1:role/ok' 'source_profile = loop' \
    '[profile alone]' 'role_arn = arn:aws:iam::1:role/ok' \
    '[profile device]' 'role_arn = arn:aws:iam::1:role/ok' 'source_profile = keys' 'mfa_serial = arn:aws:iam::1:mfa/me' \
    '[profile strange]' 'role_arn = arn:aws:iam::1:role/ok' 'credential_source = Cloud'
printf '[keys]\nAWS_ACCESS_KEY_ID = AKIATEST\naws_secret_access_key = secret/of+test\n' >.aws/credentials
store GET log >log
good role
logged 'RoleArn=arn%3Aaws%3Aiam%3A%3A1%3Arole%2Fok&RoleSessionName=a%20session&DurationSeconds=900&ExternalId=an%20id'
good chain
bad forbidden 'role arn:aws:iam::1:role/other: HTTP 403: AccessDenied, not authorized to perform: sts:AssumeRole'
bad loop "source_profile 'loop' leads back to itself"
bad alone 'has a role_arn alone'
bad device 'its role needs a code of the device arn:aws:iam::1:mfa/me'
bad strange "credential_source is 'Cloud'"
bad env 'credential_source Environment has no credentials'
bad container 'credential_source EcsContainer has no credentials'
bad instance 'credential_source Ec2InstanceMetadata has no credentials'
# Each kind of credential_source gives the keys with which the role is assumed.
assumed() { # SETTING... PROFILE
    run 0 env "${@:1:$#-1}" AWS_PROFILE="${*: -1}" "$sonde" ls $run --names
    logged 'POST / .*Action=AssumeRole&.*RoleArn=arn%3Aaws%3Aiam%3A%3A1%3Arole%2Fok&'
}
store GET log >log
assumed AWS_ACCESS_KEY_ID=AKIATEST AWS_SECRET_ACCESS_KEY=secret/of+test env
assumed AWS_CONTAINER_CREDENTIALS_FULL_URI="$AWS_ENDPOINT_URL/_/container" AWS_CONTAINER_AUTHORIZATION_TOKEN='let me' container
assumed AWS_EC2_METADATA_DISABLED=false AWS_EC2_METADATA_SERVICE_ENDPOINT="$AWS_ENDPOINT_URL/_" instance
# Keys of the environment are used themselves with any other profile.
run 0 env AWS_ACCESS_KEY_ID=AKIATEST AWS_SECRET_ACCESS_KEY=secret/of+test AWS_PROFILE=role "$sonde" ls $run --names
store GET log >log
! grep -q AssumeRole log || fail "a role is assumed: $(cat log)"
# An endpoint of its own for each service, with a path.
run 0 env -u AWS_ENDPOINT_URL AWS_ENDPOINT_URL_S3="$AWS_ENDPOINT_URL" \
    AWS_ENDPOINT_URL_STS="$AWS_ENDPOINT_URL/_/sts/" AWS_PROFILE=role "$sonde" ls $run --names
logged 'POST /_/sts/ '
config '[profile role]' 'role_arn = arn:aws:iam::1:role/ok' 'source_profile = keys' 'services = mine' '[services mine]' \
    's3 =' "  endpoint_url = $AWS_ENDPOINT_URL" 'sts =' "  endpoint_url = $AWS_ENDPOINT_URL/_/sts"
run 0 env -u AWS_ENDPOINT_URL AWS_PROFILE=role "$sonde" ls $run --names
logged 'POST /_/sts/ '

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

# --- single sign-on, with a session and without
config '[profile sso]' 'sso_session = mine' 'sso_account_id = 123' 'sso_role_name = Reader' \
    '[profile legacy]' 'sso_start_url = https://x.awsapps.com/start' 'sso_region = us-east-1' 'sso_account_id = 123' \
    'sso_role_name = Reader' '[profile other]' 'sso_session = mine' 'sso_account_id = 123' 'sso_role_name = Writer' \
    '[sso-session mine]' 'sso_start_url = https://x.awsapps.com/start' 'sso_region = us-east-1'
session=.aws/sso/cache/$(printf mine | sha1sum | cut -d ' ' -f 1).json
legacy=.aws/sso/cache/$(printf https://x.awsapps.com/start | sha1sum | cut -d ' ' -f 1).json
bad sso 'you are not logged in (expected a login: aws sso login --profile sso)'
printf '{"accessToken": "sso-token", "expiresAt": "2099-01-01T00:00:00Z"}' | tee "$session" >"$legacy"
good sso
good legacy
bad other 'HTTP 403 (expected the role Writer of account 123)'
printf '{"accessToken": "sso-token", "expiresAt": "2020-01-01T00:00:00UTC"}' >"$legacy"
bad legacy 'the login has expired (expected a login: aws sso login --profile legacy)'
printf '{"accessToken": "revoked", "expiresAt": "2099-01-01T00:00:00Z"}' >"$legacy"
bad legacy 'the login is not valid (expected a login: aws sso login'
# A session's token is exchanged before it expires, and the new one kept.
printf '{"accessToken": "old", "expiresAt": "2020-01-01T00:00:00Z", "refreshToken": "refresh-1", "clientId": "a client", "clientSecret": "a secret", "region": "us-east-1"}' >"$session"
good sso
grep -q '"accessToken": "sso-token".*"refreshToken": "refresh-2"' "$session" || fail "$(cat "$session")"
[ "$(stat -c %a "$session")" = 600 ] || fail "others can read the token: $(stat -c %a "$session")"
good sso

# --- a container that refuses, or is elsewhere
run 2 env AWS_CONTAINER_CREDENTIALS_FULL_URI="$AWS_ENDPOINT_URL/_/container" "$sonde" ls $run
grep -q 'credentials of the container: HTTP 403' "$err" || fail "$(cat "$err")"
run 2 env AWS_CONTAINER_CREDENTIALS_FULL_URI=http://example.com/x "$sonde" ls $run
grep -q "'http://example.com/x' (expected https://, or a host of this machine)" "$err" || fail "$(cat "$err")"
run 2 env AWS_ACCESS_KEY_ID=AKIATEST "$sonde" ls $run
grep -q 'AWS_ACCESS_KEY_ID: has no secret' "$err" || fail "$(cat "$err")"

# --- keys that live for 2 seconds, in a run that takes 3: none is refused
config '[profile role]' 'role_arn = arn:aws:iam::1:role/ok' 'source_profile = keys'
store PUT 'life?seconds=2'
store GET log >log
fault slow 'PUT%20runs/long' 6
AWS_PROFILE=role train s3://bucket/runs/long --out out-2
[ ! -s "$err" ] || fail "writing: $(cat "$err")"
store GET log >log
grep -q REFUSED log && fail "$(grep REFUSED log)"
[ "$(grep -c AssumeRole log)" -ge 2 ] || fail "the keys are not renewed: $(cat log)"
