#!/usr/bin/env python3
# reach.py: who reaches whom, and as whom: the probe of the test bed's NATs, firewalls and cuts.
#
# SPDX-License-Identifier: MIT
"""usage:
  reach.py serve PORT...            tells each connection the address it came from, then echoes; prints "ready"
  reach.py ask ADDRESS PORT         prints that address; or "refused", "silent" (nothing for 1 s)
  reach.py keep ADDRESS PORT FILE   connects, creates FILE, waits until it is gone; "alive" if the connection still echoes
"""

import os, selectors, socket, sys, time

SILENCE = 1.0       # s
PATIENCE = 60.0     # s, for FILE to go

def serve(ports):
    poller = selectors.DefaultSelector()
    for port in ports:
        poller.register(socket.create_server(('::', port), family=socket.AF_INET6, dualstack_ipv6=True, backlog=64), 1, 'listens')
    print('ready', flush=True)
    while True:
        for key, _ in poller.select():
            if key.data == 'listens':
                connection, address = key.fileobj.accept()
                connection.sendall(f'{address[0].removeprefix("::ffff:")}\n'.encode())
                poller.register(connection, 1, 'talks')
                continue
            try:
                data = key.fileobj.recv(4096)
                if data:
                    key.fileobj.sendall(data)
                    continue
            except OSError:
                pass
            poller.unregister(key.fileobj)
            key.fileobj.close()

def connect(address, port):
    connection = socket.create_connection((address, port), timeout=SILENCE)
    return connection, connection.recv(100).decode().strip()

def keep(address, port, file):
    connection, _ = connect(address, port)
    open(file, 'w').close()
    end = time.monotonic() + PATIENCE
    while os.path.exists(file) and time.monotonic() < end:
        time.sleep(0.01)
    connection.sendall(b'?')
    return 'alive' if connection.recv(1) == b'?' else 'closed'

def answer(words):
    try:
        return connect(words[1], int(words[2]))[1] if words[0] == 'ask' else keep(words[1], int(words[2]), words[3])
    except ConnectionError:
        return 'refused'
    except OSError:         # timeout, no route, or "not permitted" by a filter of one's own
        return 'silent'

if sys.argv[1:2] == ['serve'] and sys.argv[2:]:
    serve(list(map(int, sys.argv[2:])))
elif len(sys.argv) == {'ask': 4, 'keep': 5}.get(sys.argv[1] if sys.argv[1:] else ''):
    print(answer(sys.argv[1:]))
else:
    sys.exit(__doc__)
