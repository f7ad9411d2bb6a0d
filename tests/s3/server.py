#!/usr/bin/env python3
"""A small S3 for tests: checks every signature, and fails as it is told.

    server.py PORT_FILE    listens on a free port of 127.0.0.1, which it writes to PORT_FILE

Buckets: "bucket", and "elsewhere" and "my.moved", which are in region eu-west-1 (the last
answers with a redirection); the store is in us-east-1.
Addresses are path style, and of virtual hosts below localhost. The page of a list has 3 keys, so that
every list has several; its token is opaque. The ETag of an upload in parts is no MD5. With PUT
/_/habit?chunked=1 all answers are chunked.
Key AKIATEST, secret "secret/of+test"; with session token "old" the token has expired.
Temporary keys come from services.py.

Faults: PUT /_/fault?what=500&match=REGEX&count=N makes the next N requests whose
"METHOD key?query" matches fail: 403, 404, 500, slow, slower, reset, cut, skew, outage (until count=0 with the same
match); lost: it is served, but not answered; meet: it waits until 8 such requests are there.
GET /_/log prints the requests, those of a part of an object with its bytes, GET /_/uploads
the uploads in parts (DELETE drops them, PUT ?key= leaves one that nobody continues), GET /_/keys the keys, PUT and GET /_/object?key= an
object without a signature.
"""

import base64
import hashlib
import hmac
import http.server
import itertools
import json
import re
import socket
import sys
import threading
import time
import urllib.parse
from xml.sax.saxutils import escape

import services

KEY, SECRET = "AKIATEST", "secret/of+test"
REGIONS = {"bucket": "us-east-1", "elsewhere": "eu-west-1", "my.moved": "eu-west-1"}
PAGE = 3

lock = threading.Lock()
objects = {}  # (bucket, key): bytes
uploads = {}  # id: {number: bytes}
upload_keys = {}  # id: key
numbers = itertools.count()
faults = []  # {"what", "match", "count"}
log = []


etags = {}  # id of bytes, which objects keep: text
chunked = [False]
meeting = threading.Barrier(8, timeout=60)
busy = [0, 0]  # requests to buckets that are being served, and the most of them


def etag(data):
    if id(data) not in etags or etags[id(data)][0] is not data:
        etags[id(data)] = data, '"' + hashlib.md5(data).hexdigest() + '"'
    return etags[id(data)][1]


def encode(text):
    return urllib.parse.quote(text, safe="-._~")


class Store(services.Services, http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def date_time_string(self, timestamp=None):
        return super().date_time_string((timestamp or time.time()) + clock[0])

    def log_message(self, *_):
        pass

    # --- answering

    lost = False

    def reset(self):
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        self.close_connection = True
        self.connection.close()

    def answer(self, status, body=b"", headers=None):
        if self.lost:
            return self.reset()
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        if chunked[0] and self.command != "HEAD" and status not in (204, 304):
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            for at in range(0, len(body), 1000):
                piece = body[at:at + 1000]
                self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
            self.wfile.write(b"0\r\n\r\n")
            return
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def fail(self, status, code, message="", more="", headers=None):
        body = f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>{escape(message)}</Message>{more}</Error>"
        self.answer(status, body.encode(), headers)

    # --- signatures

    def signature_fault(self, path, query, body, signed=None):
        given = self.headers.get("authorization", "")
        found = re.fullmatch(
            rf"AWS4-HMAC-SHA256 Credential=(\w+)/(\d{{8}})/([\w-]+)/s3/aws4_request, "
            r"SignedHeaders=([\w;-]+), Signature=([0-9a-f]{64})", given)
        if not found:
            return (403, "AccessDenied", "no signature")
        key, day, region, names, signature = found.groups()
        date = self.headers["x-amz-date"]
        payload = self.headers["x-amz-content-sha256"] or ""
        token = self.headers.get("x-amz-security-token")
        if key != KEY and key not in services.temporary:
            return (403, "InvalidAccessKeyId", "no such key")
        if token == "old" or (key != KEY and services.expired(key, date)):
            return (400, "ExpiredToken", "the token has expired")
        if key != KEY and token != services.temporary[key][1]:
            return (403, "InvalidToken", "the token is another's")
        bucket = path.split("/")[1]
        if bucket == "my.moved" and region != REGIONS[bucket]:
            return (301, "PermanentRedirect", "use the endpoint", "", {"x-amz-bucket-region": REGIONS[bucket]})
        if region != REGIONS.get(bucket, region):
            return (400, "AuthorizationHeaderMalformed", "the region is wrong",
                    f"<Region>{REGIONS[bucket]}</Region>")
        if payload != "UNSIGNED-PAYLOAD" and payload != hashlib.sha256(body).hexdigest():
            return (400, "XAmzContentSHA256Mismatch", "the body is not the one signed")
        needed = {"host", "x-amz-date", "x-amz-content-sha256"}
        if not needed | ({"x-amz-security-token"} if token else set()) <= set(names.split(";")):
            return (403, "AccessDenied", "headers are not signed")
        pairs = sorted((encode(n), encode(v)) for n, v in query)
        canonical = "\n".join([
            self.command, urllib.parse.quote(signed or path, safe="/-._~"),
            "&".join(f"{n}={v}" for n, v in pairs),
            "".join(f"{n}:{self.headers[n].strip()}\n" for n in names.split(";")), names, payload])
        scope = f"{day}/{region}/s3/aws4_request"
        text = "\n".join(["AWS4-HMAC-SHA256", date, scope,
                          hashlib.sha256(canonical.encode()).hexdigest()])
        secret = ("AWS4" + (SECRET if key == KEY else services.temporary[key][0])).encode()
        for part in (day, region, "s3", "aws4_request"):
            secret = hmac.new(secret, part.encode(), hashlib.sha256).digest()
        if hmac.new(secret, text.encode(), hashlib.sha256).hexdigest() != signature:
            return (403, "SignatureDoesNotMatch", "the signature does not match")
        then = time.mktime(time.strptime(date, "%Y%m%dT%H%M%SZ")) - time.timezone
        if abs(time.time() + clock[0] - then) > 900:
            return (403, "RequestTimeTooSkewed", "the clock is wrong")
        return None

    # --- faults

    def injected(self, what):
        """True if the request has been answered."""
        if what == "403":
            self.fail(403, "AccessDenied", "Access Denied")
        elif what == "404":
            self.fail(404, "NoSuchKey", "The specified key does not exist.")
        elif what == "500":
            self.fail(500, "InternalError", "We encountered an internal error.")
        elif what == "503":
            self.fail(503, "SlowDown", "Please reduce your request rate.")
        elif what in ("slow", "slower"):
            time.sleep(0.5 if what == "slow" else 2)
            return False
        elif what == "meet":
            meeting.wait()
            return False
        elif what == "lost":
            self.lost = True
            return False
        elif what in ("reset", "outage"):
            self.reset()
        else:
            return False
        return True

    def find_fault(self, line):
        with lock:
            for fault in faults:
                if fault["count"] != 0 and re.search(fault["match"], line):
                    fault["count"] -= 1 if fault["what"] != "outage" else 0
                    return fault["what"]
        return None

    # --- requests

    def serve(self):
        split = urllib.parse.urlsplit(self.path)
        path = urllib.parse.unquote(split.path)
        query = urllib.parse.parse_qsl(split.query, keep_blank_values=True)
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        if self.serve_service(path, body):
            with lock:
                log.append(f"{self.command} {path} {body.decode()}")
            return None
        if path.startswith("/_/"):
            return self.control(path[3:], dict(query), body)
        signed = path
        host = re.fullmatch(r"([\w.-]+)\.localhost(:\d+)?", self.headers.get("host", ""))
        if host:
            path = f"/{host[1]}{path}"
        _, bucket, key = (path + "/").split("/", 2)
        key = key[:-1]
        what = self.find_fault(f"{self.command} {key}?{split.query}")
        with lock:
            log.append(f"{'VIRTUAL ' if host else ''}{self.command} {key} {split.query} {what or ''} "
                       f"{self.headers.get('range', '')}".strip())
            busy[0] += 1
            busy[1] = max(busy)
        self.lost = False
        try:
            if what and self.injected(what):
                return None
            fault = self.signature_fault(path, query, body, signed=signed)
            if fault:
                with lock:
                    log.append(f"REFUSED {fault[1]}")
                return self.fail(*fault)
            if bucket not in REGIONS:
                return self.fail(404, "NoSuchBucket", "The specified bucket does not exist")
            self.cut = what == "cut"
            if not key and "uploads" in dict(query):
                return self.list_uploads(dict(query))
            if not key:
                return self.list(bucket, dict(query))
            return getattr(self, "on_" + self.command)(bucket, key, dict(query), body)
        except OSError:
            return None
        finally:
            with lock:
                busy[0] -= 1

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = serve

    def list(self, bucket, query):
        prefix, after = query.get("prefix", ""), query.get("start-after", "")
        if "continuation-token" in query:
            after = base64.b64decode(query["continuation-token"]).decode()
        rows, last, more, seen = [], "", False, set()
        with lock:
            keys = sorted(k for b, k in objects if b == bucket and k.startswith(prefix) and k > after)
        for key in keys:
            rest = key[len(prefix):]
            if query.get("delimiter") and "/" in rest:
                folder = prefix + rest[:rest.index("/") + 1]
                last = folder + "~" if len(rows) < PAGE or folder in seen else last
                if folder in seen or folder == after:
                    continue
                if len(rows) == PAGE:
                    more = True
                    break
                seen.add(folder)
                rows.append(f"<CommonPrefixes><Prefix>{encode(folder)}</Prefix></CommonPrefixes>")
                continue
            if len(rows) == PAGE:
                more = True
                break
            with lock:
                data = objects.get((bucket, key), b"")
            rows.append(f"<Contents><Key>{encode(key)}</Key><ETag>{escape(etag(data), {chr(34): '&quot;'})}"
                        f"</ETag><Size>{len(data)}</Size></Contents>")
            last = key
        token = base64.b64encode(last.encode()).decode()
        token = f"<NextContinuationToken>{escape(token)}</NextContinuationToken>" if more else ""
        self.answer(200, (f"<ListBucketResult><IsTruncated>{str(more).lower()}</IsTruncated>"
                          f"{''.join(rows)}{token}</ListBucketResult>").encode())

    def list_uploads(self, query):
        with lock:
            rows = "".join(f"<Upload><UploadId>{escape(u)}</UploadId><Key>{encode(upload_keys[u])}</Key></Upload>"
                           for u in uploads if upload_keys[u].startswith(query["prefix"]))
        self.answer(200, f"<ListMultipartUploadsResult>{rows}</ListMultipartUploadsResult>".encode())

    def on_GET(self, bucket, key, _query, _body):
        with lock:
            data = objects.get((bucket, key))
        if data is None:
            return self.fail(404, "NoSuchKey", "The specified key does not exist.")
        if self.headers.get("if-none-match") == etag(data):
            return self.answer(304)
        headers, status = {"ETag": etag(data)}, 200
        found = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("range", ""))
        if found:
            first, last = int(found[1]), min(int(found[2]), len(data) - 1)
            if first >= len(data):
                return self.fail(416, "InvalidRange")
            headers["Content-Range"] = f"bytes {first}-{last}/{len(data)}"
            data, status = data[first:last + 1], 206
        if self.cut:
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data[:len(data) // 2])
            self.wfile.flush()
            self.close_connection = True
            return None
        return self.answer(status, data, headers)

    on_HEAD = on_GET

    def on_PUT(self, bucket, key, query, body):
        with lock:
            if query.get("uploadId", "") in uploads:
                uploads[query["uploadId"]][int(query["partNumber"])] = body
            elif "uploadId" in query:
                return self.fail(404, "NoSuchUpload", "The specified upload does not exist.")
            elif self.headers.get("if-none-match") == "*" and (bucket, key) in objects:
                return self.fail(412, "PreconditionFailed")
            else:
                objects[bucket, key] = body
        return self.answer(200, b"", {"ETag": etag(body)})

    def on_POST(self, bucket, key, query, body):
        with lock:
            if "uploads" in query:
                name = f"upload {next(numbers)}/+"
                uploads[name] = {}
                upload_keys[name] = key
                return self.answer(200, f"<R><UploadId>{name}</UploadId></R>".encode())
            if query["uploadId"] not in uploads:
                return self.fail(404, "NoSuchUpload", "The specified upload does not exist.")
            parts = uploads.pop(query["uploadId"])
            wanted = re.findall(r"<PartNumber>(\d+)</PartNumber><ETag>([^<]*)</ETag>", body.decode())
            if [int(n) for n, _ in wanted] != sorted(parts) or any(
                    etag(parts[int(n)]) != tag.replace("&quot;", '"') for n, tag in wanted):
                return self.answer(200, b"<Error><Code>InvalidPart</Code></Error>")
            data = b"".join(parts[n] for n in sorted(parts))
            objects[bucket, key] = data
            etags[id(data)] = data, f'"{hashlib.md5(data).hexdigest()}-{len(parts)}"'
        return self.answer(200, b"<CompleteMultipartUploadResult/>")

    def on_DELETE(self, bucket, key, query, _body):
        with lock:
            if "uploadId" in query:
                uploads.pop(query["uploadId"], None)
            else:
                objects.pop((bucket, key), None)
        return self.answer(204)

    # --- the test's own

    def control(self, what, query, body):
        with lock:
            if what == "fault":
                faults[:] = [f for f in faults if f["match"] != query["match"]]
                faults.append({"what": query["what"], "match": query["match"],
                               "count": int(query.get("count", 1))})
            elif what == "clock":
                clock[0] = int(query["seconds"])
            elif what == "habit":
                chunked[0] = query["chunked"] == "1"
            elif what == "life":
                services.life[0] = float(query["seconds"])
            elif what == "log":
                body = ("\n".join(log) + "\n").encode()
                log.clear()
                return self.answer(200, body)
            elif what == "busy":
                body, busy[1] = str(busy[1]).encode(), busy[0]
                return self.answer(200, body)
            elif what == "uploads" and self.command == "DELETE":
                uploads.clear()
            elif what == "uploads" and self.command == "PUT":
                uploads["orphan"], upload_keys["orphan"] = {1: b"x"}, query["key"]
            elif what == "uploads":
                return self.answer(200, "".join(f"{upload_keys[u]} {u}\n" for u in uploads).encode())
            elif what == "keys":
                return self.answer(200, "".join(k + "\n" for _, k in sorted(objects)).encode())
            elif what == "object" and self.command == "PUT":
                objects[query.get("bucket", "bucket"), query["key"]] = body
            elif what == "object" and self.command == "DELETE":
                objects.pop((query.get("bucket", "bucket"), query["key"]), None)
            elif what == "object":
                return self.answer(200, objects.get((query.get("bucket", "bucket"), query["key"]), b""))
            elif what == "copy":
                for (bucket, key), data in list(objects.items()):
                    if key.startswith(query["from"] + "/"):
                        objects[bucket, query["to"] + key[len(query["from"]):]] = data
            elif what == "latest/api/token":
                return self.answer(200, b"a-token")
            elif what.startswith("latest/meta-data/iam"):
                if self.headers.get("x-aws-ec2-metadata-token") != "a-token":
                    return self.answer(401)
                return self.answer(200, b"a-role\n" if what.endswith("/") else keys_json())
            elif what == "latest/meta-data/placement/region":
                return self.answer(200, b"us-east-1")
            elif what == "container":
                good = self.headers.get("authorization") == "let me"
                return self.answer(200 if good else 403, keys_json() if good else b"")
        return self.answer(200)


def keys_json():
    return json.dumps({"AccessKeyId": KEY, "SecretAccessKey": SECRET, "Token": "fresh",
                       "Expiration": "2099-01-01T00:00:00Z"}).encode()


clock = [0]


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64

    def handle_error(self, *_):
        pass


if __name__ == "__main__":
    server = Server(("127.0.0.1", 0), Store)
    with open(sys.argv[1] + ".new", "w") as out:
        out.write(str(server.server_address[1]))
    import os
    os.rename(sys.argv[1] + ".new", sys.argv[1])
    server.serve_forever()
