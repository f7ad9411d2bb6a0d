"""The service that gives credentials for a web token, STS, for the tests' server.

Temporary credentials are good for as long as PUT /_/life?seconds=N says, one hour at first.
It gives roles whose ARN contains "role/ok", for the web token "a-web-token".
"""

import time
import urllib.parse

temporary = {}  # key: (secret, token, seconds since 1970)
life = [3600]
WEB_TOKEN = "a-web-token"


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

    def on_sts(self, body):
        form = dict(urllib.parse.parse_qsl(body.decode()))
        if self.headers.get("content-type") != "application/x-www-form-urlencoded":
            return self.fail(400, "MalformedInput", "not a form")
        if form["Action"] != "AssumeRoleWithWebIdentity" or form["WebIdentityToken"] != WEB_TOKEN:
            return self.fail(400, "InvalidIdentityToken", "the token is not good")
        if "role/ok" not in form["RoleArn"]:
            return self.fail(403, "AccessDenied", "not authorized to perform: sts:AssumeRole")
        key, secret, token, end = new_keys()
        return self.answer(200, (
            f"<R><Credentials><AccessKeyId>{key}</AccessKeyId><SecretAccessKey>{secret}</SecretAccessKey>"
            f"<SessionToken>{token}</SessionToken><Expiration>{iso(end)}</Expiration></Credentials></R>").encode())

    def serve_service(self, path, body):
        """Answers a request that is not one to a bucket; False: it is one."""
        if self.command != "POST" or path not in ("/", "/_/sts/"):
            return False
        self.on_sts(body)
        return True
