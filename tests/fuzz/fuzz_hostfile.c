/* fuzz_hostfile.c: libFuzzer target for the launcher's host file. Whatever the bytes are, the parser refuses them with a
 * text that names the file, or gives hosts that keep its promises, and that read the same when written out again.
 * SPDX-License-Identifier: MIT
 */
#include "tools/gcrun.h"
#include "tests/fuzz/fuzz.h"

#include <stdio.h>
#include <string.h>

static void check_host(const gcrun_host *host)
{
    char line[GCRUN_NAME_MAX + GCRUN_CLUSTER_MAX + 64], error[GCRUN_TEXT];
    gcrun_host *again;
    int count;
    must(memchr(host->name, 0, sizeof host->name) && memchr(host->cluster, 0, sizeof host->cluster));
    must(host->name[0] && host->name[0] != '-' && !strpbrk(host->name, " \t\r\n#=;&|<>$`\\\"'*?(){}!~"));
    must(!strpbrk(host->cluster, " \t\r\n#=,"));
    must(host->slots >= 1 && host->slots <= GCRUN_RANKS_MAX);
    int n = snprintf(line, sizeof line, "%s slots=%d%s%s", host->name, host->slots, host->cluster[0] ? " cluster=" : "", host->cluster);
    must(gcrun_hosts_parse(line, (size_t)n, "again", &again, &count, error) == 0 && count == 1);
    must(strcmp(again->name, host->name) == 0 && strcmp(again->cluster, host->cluster) == 0 && again->slots == host->slots);
    free(again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    char error[GCRUN_TEXT] = "";
    gcrun_host *host;
    int count;
    long slots = 0;
    if (gcrun_hosts_parse((const char *)data, bytes, "file", &host, &count, error) != 0) {
        must(!host && count == 0 && strncmp(error, "file:", 5) == 0 && strlen(error) < sizeof error);
        return 0;
    }
    must(count > 0 && error[0] == 0);
    for (int i = 0; i < count; i++) {
        check_host(&host[i]);
        slots += host[i].slots;
    }
    must(slots <= GCRUN_RANKS_MAX);
    free(host);
    return 0;
}
