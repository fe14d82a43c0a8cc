/* port.h: a TCP port for a listener that is made later, perhaps by another process.
 * SPDX-License-Identifier: MIT
 */
#ifndef GCT_PORT_H
#define GCT_PORT_H

#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

/* One that nobody has at the moment, and below the range from which the kernel takes ports for others. Aborts if it finds none. */
static inline int free_port(void)
{
    enum { FIRST = 20000, PORTS = 12000, TRIES = 100 };
    static int tried;
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    unsigned at = (unsigned)now.tv_nsec / 1000 + (unsigned)getpid();
    for (int i = 0; i < TRIES; i++) {
        int port = FIRST + (int)((at + (unsigned)tried++ * 7919) % PORTS), fd = socket(AF_INET, SOCK_STREAM, 0);
        struct sockaddr_in any = { .sin_family = AF_INET, .sin_port = htons((uint16_t)port) };
        int taken = fd < 0 || bind(fd, (struct sockaddr *)&any, sizeof any);
        if (fd >= 0)
            close(fd);
        if (!taken)
            return port;
    }
    perror("port.h: no port is free");
    abort();
}

#endif
