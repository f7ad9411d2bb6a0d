"""The services that give credentials, for the tests' server: STS, SSO and its OIDC.

Temporary credentials are good for as long as PUT /_/life?seconds=N says, one hour at first.
STS gives roles whose ARN contains "role/ok", with keys or for the web token "a-web-token".
SSO knows the token "sso-token", and OIDC exchanges the refresh token "refresh-1" for it.
"""

import json
import time
import urllib.parse

temporary = {}  # key: (secret, token, seconds since 1970)
life = [3600]
WEB_TOKEN, SSO_TOKEN = "a-web-token", "sso-token"


def new_keys():
    number = len(temporary)
    end = time.time() + life[0]
    key, secret, token = f"ASIA{number}", f"secret {number}", f"token/{number}+="
    temporary[key] = secret, token, end
    return key, secret, token, end


def iso(seconds):
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))


def expired(key, date):
    """Whether the key had expired when a request was signed: a busy machine may deliver it late."""
    return time.mktime(time.strptime(date, "%Y%m%dT%H%M%SZ")) - time.timezone > temporary[key][2]


class Services:
    """Mixed into the handler of requests."""

    def on_sts(self, path, body, query):
        form = dict(urllib.parse.parse_qsl(body.decode()))
        web = form["Action"] == "AssumeRoleWithWebIdentity"
        if self.headers.get("content-type") != "application/x-www-form-urlencoded":
            return self.fail(400, "MalformedInput", "not a form")
        fault = None if web else self.signature_fault(path, query, body, "sts")
        if fault:
            return self.fail(*fault)
        if web and form["WebIdentityToken"] != WEB_TOKEN:
            return self.fail(400, "InvalidIdentityToken", "the token is not good")
        if "role/ok" not in form["RoleArn"] or form.get("ExternalId", "an id") != "an id":
            return self.fail(403, "AccessDenied", "not authorized to perform: sts:AssumeRole")
        key, secret, token, end = new_keys()
        return self.answer(200, (
            f"<R><Credentials><AccessKeyId>{key}</AccessKeyId><SecretAccessKey>{secret}</SecretAccessKey>"
            f"<SessionToken>{token}</SessionToken><Expiration>{iso(end)}</Expiration></Credentials></R>").encode())

    def on_sso(self, query):
        if self.headers.get("x-amz-sso_bearer_token") != SSO_TOKEN:
            return self.answer(401, b'{"message": "Session token not found or invalid"}')
        if query != {"role_name": "Reader", "account_id": "123"}:
            return self.answer(403, b'{"message": "No access"}')
        key, secret, token, end = new_keys()
        return self.answer(200, json.dumps({"roleCredentials": {
            "accessKeyId": key, "secretAccessKey": secret, "sessionToken": token,
            "expiration": int(end * 1000)}}).encode())

    def on_oidc(self, body):
        asked = json.loads(body)
        if asked != {"clientId": "a client", "clientSecret": "a secret", "grantType": "refresh_token",
                     "refreshToken": "refresh-1"}:
            return self.answer(400, b'{"error": "invalid_grant"}')
        return self.answer(200, json.dumps({"accessToken": SSO_TOKEN, "expiresIn": 3600,
                                            "refreshToken": "refresh-2"}).encode())

    def serve_service(self, path, query, body):
        """Answers a request that is not one to a bucket; False: it is one."""
        end = path.rsplit("/", 1)[-1]
        if self.command == "POST" and path in ("/", "/_/sts/"):
            self.on_sts(path, body, query)
        elif self.command == "GET" and path.endswith("/federation/credentials"):
            self.on_sso(dict(query))
        elif self.command == "POST" and end == "token":
            self.on_oidc(body)
        else:
            return False
        return True
