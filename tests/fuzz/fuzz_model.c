/* fuzz_model.c: libFuzzer target for model files. Whatever the bytes are, the parser refuses them with a text that names the
 * line, or gives a model that is whole: its numbers within bounds, costs for every pair. Written out and read again it is the
 * same, to the byte.
 * SPDX-License-Identifier: MIT
 *
 * covers: modelfile.c ^(modelfile_(fail|split|is|fits|num|shape|grow|rank|class|what|make|cost|turn|compl)|gci_model_read)
 */
#include "gridcomm_int.h"
#include "tests/fuzz/fuzz.h"

static void check(const gc_model *m)
{
    must(m->ranks > 0 && m->classes > 0 && m->classes <= m->ranks && m->hosts <= m->ranks && m->sites <= m->classes);
    for (int i = 0; i < m->ranks; i++) {
        double seconds = gci_model_p2p(m, 0, i, 1000);
        int64_t ticks = gci_model_ticks(m, 0, i, SIZE_MAX / 2), busy = gci_model_busy_ticks(m, i, 0, 0);
        must(m->class_of[i] >= 0 && m->class_of[i] < m->classes && m->host_of[i] >= 0 && m->host_of[i] < m->hosts);
        must(seconds >= 0 && seconds < 1e30 && ticks >= 0 && ticks <= GCI_TICKS_MOST && busy >= 0 && busy <= GCI_TICKS_MOST);
    }
    for (int i = 0; i < m->classes; i++)
        must(m->site_of[i] >= 0 && m->site_of[i] < m->sites && m->nic[i].out >= 0 && m->within[i].latency >= 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    gci_env env;
    char error[GCI_TEXT], *text, *again;
    size_t n, n_again;
    gc_model *m, *same;
    gci_env_init(&env, gci_sys_real(), NULL);
    int err = gci_model_read(&env, (const char *)data, bytes, &m, error);
    if (err != GC_OK) {
        must(err == GC_ERR_CONFIG && !m);
        must(memchr(error, 0, sizeof error) && strncmp(error, "model file, line ", 17) == 0);
    } else {
        check(m);
        must(gci_model_write(&env, m, &text, &n) == GC_OK && gci_model_read(&env, text, n, &same, error) == GC_OK);
        must(gci_model_write(&env, same, &again, &n_again) == GC_OK && n == n_again && memcmp(text, again, n) == 0);
        gci_free(&env, text);
        gci_free(&env, again);
        gci_model_drop(&env, m);
        gci_model_drop(&env, same);
    }
    must(env.memory == 0);
    return 0;
}
