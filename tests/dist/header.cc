// header.cc: the public header in C++, where GRIDCOMM_OPTIONS_INIT is C only and gc_options_init stands in for it.
// SPDX-License-Identifier: MIT
#include "gridcomm.h"

#include <cstring>

int main()
{
    gc_options options;
    std::memset(&options, 0x5a, sizeof options);
    gc_options_init(&options, sizeof options);
    if (options.size != sizeof options || options.rank != -1 || options.direct != -1 || options.root != nullptr)
        return 1;
    // A caller that was compiled against an older, shorter struct: nothing beyond its size is written.
    std::memset(&options, 0x5a, sizeof options);
    gc_options_init(&options, offsetof(gc_options, root));
    unsigned char untouched[sizeof options.root];
    std::memset(untouched, 0x5a, sizeof untouched);
    if (options.rank != -1 || std::memcmp(&options.root, untouched, sizeof untouched) != 0)
        return 2;
    return gc_version() == GRIDCOMM_VERSION_MAJOR * 10000 + GRIDCOMM_VERSION_MINOR * 100 + GRIDCOMM_VERSION_PATCH ? 0 : 3;
}
