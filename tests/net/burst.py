#!/usr/bin/env python3
# burst.py: datagrams of known size, for what TCP would blur: rates, queues and counts of the test bed.
#
# SPDX-License-Identifier: MIT
"""usage: burst.py count PORT                              prints datagrams, bytes, seconds from the first to the last
       burst.py send ADDRESS,... PORT COUNT BYTES [RATE]    to each address in turn
                                                            RATE: payload byte/s of all together, else as fast as it goes"""

import socket, sys, time

FIRST = 5.0     # s until the first datagram
SILENCE = 0.5   # s after which the burst is over
RCVBUFFORCE = 33        # SO_RCVBUFFORCE, which Python does not name: root may have all that a burst needs


def count(port):
    s = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)       # takes IPv4 too
    s.setsockopt(socket.SOL_SOCKET, RCVBUFFORCE, 64 << 20)
    s.bind(('::', port))
    s.settimeout(FIRST)
    print('ready', flush=True)
    times, total = [], 0
    try:
        while True:
            total += len(s.recv(65536))
            times.append(time.monotonic())
            s.settimeout(SILENCE)
    except socket.timeout:
        pass
    print(len(times), total, f'{times[-1] - times[0] if times else 0:.6f}')


def connected(address, port):
    s = socket.socket(socket.AF_INET6 if ':' in address else socket.AF_INET, socket.SOCK_DGRAM)
    s.connect((address, port))
    return s


def send(addresses, port, n, size, rate=0.0):
    to = [connected(a, port) for a in addresses.split(',')]
    data, begin = bytes(size), time.monotonic()
    for i in range(n):
        if rate:
            time.sleep(max(0.0, begin + i * size / rate - time.monotonic()))
        to[i % len(to)].send(data)


if __name__ == '__main__':
    if sys.argv[1:2] == ['count'] and len(sys.argv) == 3:
        count(int(sys.argv[2]))
    elif sys.argv[1:2] == ['send'] and len(sys.argv) in (6, 7):
        send(sys.argv[2], *map(int, sys.argv[3:6]), *map(float, sys.argv[6:]))
    else:
        sys.exit(__doc__)
