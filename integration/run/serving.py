"""Serve HTTP for `rink run`: answer with the token, end at SIGTERM.

Arguments are its address and port. It uses only the standard library, so that it starts within a
few milliseconds.
"""

import os
import socket
import sys


def main(host, port):
    token = os.environ["RINK_TOKEN"].encode()
    head = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\nConnection: close\r\n\r\n" % len(token)
    with socket.create_server((host, int(port))) as server:
        while True:
            connection, _ = server.accept()
            with connection:
                connection.recv(4096)
                connection.sendall(head + token)


main(*sys.argv[1:])
