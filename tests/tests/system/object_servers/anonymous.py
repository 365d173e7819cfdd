"""Passes requests on to a server without saying who asks: anonymous.py PORT SERVER. Google's client names nobody, and s3s-fs takes no such name."""

import http.client
import http.server
import sys

port, server = int(sys.argv[1]), sys.argv[2]


class Relay(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def relay(self):
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        headers = {name: value for name, value in self.headers.items() if name.lower() != "authorization"}
        connection = http.client.HTTPConnection(server)
        connection.request(self.command, self.path, body, headers)
        answer = connection.getresponse()
        content = answer.read()
        self.send_response_only(answer.status)
        is_length = lambda name: name.lower() in ("content-length", "transfer-encoding", "connection")
        for name, value in answer.getheaders():
            if not is_length(name) or (self.command == "HEAD" and name.lower() == "content-length"):
                self.send_header(name, value)
        if self.command != "HEAD":
            self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)
        connection.close()

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = relay

    def log_message(self, *_):
        pass


http.server.ThreadingHTTPServer(("127.0.0.1", port), Relay).serve_forever()
