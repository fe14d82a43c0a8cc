/* life.c: start and end of a job, what surrounds it, and what becomes of errors.
 * SPDX-License-Identifier: MIT
 *
 * MPI has one world in a process, so there is one here; all other state of the layer belongs to objects that programs made.
 */
#define _POSIX_C_SOURCE 200809L
#include "mpi_int.h"

#include <pthread.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

static struct life {
    bool began, ended;
    int thread_level;
    pthread_t main;
    pthread_mutex_t lock;               /* of the list of objects */
    gcm_object *objects;
    pthread_mutex_t handlers;           /* of which communicator has which */
} life = { .lock = PTHREAD_MUTEX_INITIALIZER, .handlers = PTHREAD_MUTEX_INITIALIZER };

/* ---- objects ----------------------------------------------------------------------------------------------------- */

GCM void *gcm_new(size_t bytes)
{
    gcm_object *o = calloc(1, bytes);
    if (!o)
        return NULL;
    pthread_mutex_lock(&life.lock);
    o->next = life.objects;
    if (o->next)
        o->next->before = o;
    life.objects = o;
    pthread_mutex_unlock(&life.lock);
    return o;
}

GCM void gcm_delete(void *object)
{
    gcm_object *o = object;
    if (o->numbered)
        gcm_handle_forget(o);
    pthread_mutex_lock(&life.lock);
    if (o->before)
        o->before->next = o->next;
    else
        life.objects = o->next;
    if (o->next)
        o->next->before = o->before;
    pthread_mutex_unlock(&life.lock);
    free(o);
}

static void end_all(void)
{
    for (gcm_object *o = life.objects, *next; o; o = next) {
        bool ends = o->end != NULL;
        next = o->next;
        if (ends) {
            o->end(o);
            next = life.objects;        /* others may have gone with it */
        }
    }
}

static void delete_all(void)
{
    while (life.objects)
        gcm_delete(life.objects);
}

/* ---- errors ------------------------------------------------------------------------------------------------------ */

struct gcm_errhandler gcm_errors_are_fatal, gcm_errors_return;

GCM int gcm_class(int err)
{
    switch (err) {
    case GC_OK:              return MPI_SUCCESS;
    case GC_ERR_ARG:         return MPI_ERR_ARG;
    case GC_ERR_NOMEM:       return MPI_ERR_NO_MEM;
    case GC_ERR_TRUNCATE:    return MPI_ERR_TRUNCATE;
    case GC_ERR_PENDING:     return MPI_ERR_PENDING;
    case GC_ERR_UNSUPPORTED: return MPI_ERR_UNSUPPORTED_OPERATION;
    default:                 return MPI_ERR_OTHER;
    }
}

static const char *class_text(int class)
{
    static const char *const texts[] = {
        [MPI_SUCCESS] = "no error", [MPI_ERR_BUFFER] = "the buffer is invalid, or the attached one too short",
        [MPI_ERR_COUNT] = "the count is invalid", [MPI_ERR_TYPE] = "the data type is invalid, or not committed",
        [MPI_ERR_TAG] = "the tag is invalid", [MPI_ERR_COMM] = "the communicator is invalid, or MPI is not initialized",
        [MPI_ERR_RANK] = "the rank is invalid", [MPI_ERR_REQUEST] = "the request is invalid",
        [MPI_ERR_ROOT] = "the root is invalid", [MPI_ERR_GROUP] = "the group is invalid",
        [MPI_ERR_OP] = "the operation is invalid, or not defined for this data type",
        [MPI_ERR_TOPOLOGY] = "the topology is invalid", [MPI_ERR_DIMS] = "the dimensions are invalid",
        [MPI_ERR_ARG] = "an argument is invalid", [MPI_ERR_UNKNOWN] = "unknown error",
        [MPI_ERR_TRUNCATE] = "the message is longer than its receive", [MPI_ERR_OTHER] = "known error, see its text",
        [MPI_ERR_INTERN] = "internal error", [MPI_ERR_PENDING] = "the request is not complete",
        [MPI_ERR_IN_STATUS] = "the error is in the status", [MPI_ERR_NO_MEM] = "out of memory",
        [MPI_ERR_KEYVAL] = "the key of the attribute is invalid", [MPI_ERR_INFO] = "the info object is invalid",
        [MPI_ERR_UNSUPPORTED_OPERATION] = "the operation is not supported" };
    const char *text = class >= 0 && class < (int)(sizeof texts / sizeof *texts) ? texts[class] : NULL;
    return text ? text : "unknown error";
}

enum { ABORT_NAP = 300000000 };         /* ns: who aborted or failed ends first, so that its code is the job's status */

static void error_fatal(MPI_Comm comm, const char *call, int class, const char *why)
{
    int err = comm->gc ? gc_last_error(comm->gc, NULL, NULL, 0) : GC_OK;
    if (err == GC_ERR_ABORTED || err == GC_ERR_PEER)
        nanosleep(&(struct timespec){ .tv_nsec = ABORT_NAP }, NULL);
    fprintf(stderr, "rank %d: %s: %s%s%s\n", gcm_comm_world.rank, call, class_text(class), why && why[0] ? ": " : "",
            why ? why : "");
    MPI_Abort(comm, class);
}

/* Another thread may set another one meanwhile, and so free this one. */
GCM MPI_Errhandler gcm_errhandler_of(MPI_Comm comm)
{
    pthread_mutex_lock(&life.handlers);
    MPI_Errhandler handler = comm->handler;
    if (handler && handler->fn)
        handler->refs++;
    pthread_mutex_unlock(&life.handlers);
    return handler;
}

GCM int gcm_error(MPI_Comm comm, const char *call, int class, const char *why)
{
    MPI_Comm heard = gcm_comm_bad(comm) ? MPI_COMM_WORLD : comm;
    MPI_Errhandler handler = gcm_errhandler_of(heard);
    if (handler && handler->fn)
        handler->fn(&heard, &class);
    else if (handler != MPI_ERRORS_RETURN)
        error_fatal(heard, call, class, why);
    if (handler)
        gcm_errhandler_drop(handler);
    return class;
}

GCM int gcm_gc_error(MPI_Comm comm, const char *call, int err)
{
    char why[MPI_MAX_ERROR_STRING] = "";
    if (!err)
        return MPI_SUCCESS;
    gc_last_error(comm->gc, NULL, why, sizeof why);
    return gcm_error(comm, call, gcm_class(err), why);
}

GCM void gcm_errhandler_drop(MPI_Errhandler handler)
{
    if (handler->fn && --handler->refs == 0)
        gcm_delete(handler);
}

int MPI_Comm_create_errhandler(MPI_Comm_errhandler_function *fn, MPI_Errhandler *handler)
{
    if (!fn || !handler)
        return GCM_FAIL(NULL, MPI_ERR_ARG);
    *handler = gcm_new(sizeof **handler);
    if (!*handler)
        return GCM_FAIL(NULL, MPI_ERR_NO_MEM);
    (*handler)->fn = fn;
    (*handler)->refs = 1;
    return MPI_SUCCESS;
}

int MPI_Comm_set_errhandler(MPI_Comm comm, MPI_Errhandler handler)
{
    if (gcm_comm_bad(comm) || !handler)
        return GCM_FAIL(comm, gcm_comm_bad(comm) ? MPI_ERR_COMM : MPI_ERR_ARG);
    handler->refs++;
    pthread_mutex_lock(&life.handlers);
    MPI_Errhandler before = comm->handler;
    comm->handler = handler;
    pthread_mutex_unlock(&life.handlers);
    gcm_errhandler_drop(before);
    return MPI_SUCCESS;
}

int MPI_Comm_get_errhandler(MPI_Comm comm, MPI_Errhandler *handler)
{
    if (gcm_comm_bad(comm) || !handler)
        return GCM_FAIL(comm, gcm_comm_bad(comm) ? MPI_ERR_COMM : MPI_ERR_ARG);
    *handler = gcm_errhandler_of(comm);
    return MPI_SUCCESS;
}

int MPI_Comm_call_errhandler(MPI_Comm comm, int code)
{
    if (gcm_comm_bad(comm))
        return GCM_FAIL(comm, MPI_ERR_COMM);
    gcm_error(comm, __func__, code, NULL);
    return MPI_SUCCESS;
}

int MPI_Errhandler_free(MPI_Errhandler *handler)
{
    if (!handler || !*handler)
        return GCM_FAIL(NULL, MPI_ERR_ARG);
    gcm_errhandler_drop(*handler);
    *handler = MPI_ERRHANDLER_NULL;
    return MPI_SUCCESS;
}

int MPI_Errhandler_create(MPI_Handler_function *fn, MPI_Errhandler *handler) { return MPI_Comm_create_errhandler(fn, handler); }
int MPI_Errhandler_set(MPI_Comm comm, MPI_Errhandler handler) { return MPI_Comm_set_errhandler(comm, handler); }
int MPI_Errhandler_get(MPI_Comm comm, MPI_Errhandler *handler) { return MPI_Comm_get_errhandler(comm, handler); }

int MPI_Error_string(int code, char *text, int *length)
{
    if (!text || !length)
        return GCM_FAIL(NULL, MPI_ERR_ARG);
    *length = snprintf(text, MPI_MAX_ERROR_STRING, "%s", class_text(code));
    return MPI_SUCCESS;
}

int MPI_Error_class(int code, int *error_class)
{
    if (!error_class)
        return GCM_FAIL(NULL, MPI_ERR_ARG);
    *error_class = code;
    return MPI_SUCCESS;
}

/* ---- start and end ----------------------------------------------------------------------------------------------- */

static int init(const char *call, int level)
{
    char why[MPI_MAX_ERROR_STRING] = "";
    gc_options options = GRIDCOMM_OPTIONS_INIT;
    gc_comm *world, *self;
    if (life.began)
        return gcm_error(NULL, call, MPI_ERR_OTHER, "MPI is initialized already");
    options.error_text = why;
    options.error_text_size = sizeof why;
    int err = gc_init(&world, &options);
    if (err)
        return gcm_error(NULL, call, gcm_class(err), why[0] ? why : gc_strerror(err));
    life.began = true;
    life.main = pthread_self();
    life.thread_level = level;
    int class = gcm_comm_open(MPI_COMM_WORLD, world, "MPI_COMM_WORLD");
    if (!class)
        class = gcm_class(gc_comm_create(world, (int[]){ gc_rank(world) }, 1, &self));
    if (!class)
        class = gcm_comm_open(MPI_COMM_SELF, self, "MPI_COMM_SELF");
    return class ? gcm_error(MPI_COMM_WORLD, call, class, NULL) : MPI_SUCCESS;
}

int MPI_Init(int *argc, char ***argv)
{
    (void)argc;
    (void)argv;
    return init(__func__, MPI_THREAD_SINGLE);
}

int MPI_Init_thread(int *argc, char ***argv, int required, int *provided)
{
    (void)argc;
    (void)argv;
    if (!provided || required < MPI_THREAD_SINGLE || required > MPI_THREAD_MULTIPLE)
        return GCM_FAIL(NULL, MPI_ERR_ARG);
    *provided = required;
    return init(__func__, required);
}

int MPI_Finalize(void)
{
    gc_comm *world = gcm_comm_world.gc;
    if (!life.began || life.ended)
        return GCM_FAIL(NULL, MPI_ERR_OTHER);
    gcm_attrs_end(MPI_COMM_SELF);       /* first of all: libraries end themselves so */
    gcm_attrs_end(MPI_COMM_WORLD);
    bool all_here = gc_barrier(world) == GC_OK;         /* nobody begins to receive any more; gc_finalize tells what has failed */
    gcm_orphans_wait(true, all_here);
    end_all();
    int err = gc_finalize(world);
    life.ended = true;
    gcm_comm_world.gc = NULL;           /* but its error handler may be needed once more */
    int class = err ? gcm_error(NULL, __func__, gcm_class(err), gc_strerror(err)) : MPI_SUCCESS;
    gcm_comm_close(MPI_COMM_SELF);
    gcm_comm_close(MPI_COMM_WORLD);
    delete_all();
    gcm_handles_end();
    return class;
}

int MPI_Initialized(int *flag)
{
    *flag = life.began;
    return MPI_SUCCESS;
}

int MPI_Finalized(int *flag)
{
    *flag = life.ended;
    return MPI_SUCCESS;
}

int MPI_Query_thread(int *provided)
{
    *provided = life.thread_level;
    return MPI_SUCCESS;
}

int MPI_Is_thread_main(int *flag)
{
    *flag = pthread_equal(life.main, pthread_self()) != 0;
    return MPI_SUCCESS;
}

int MPI_Abort(MPI_Comm comm, int code)
{
    (void)comm;         /* the whole job goes, as the standard allows */
    if (gcm_comm_world.gc)
        gc_abort(gcm_comm_world.gc, code);
    fflush(NULL);
    _exit(code & 0xff ? code : 1);      /* at once: other threads may be anywhere; as 0 it would be no failure */
}

/* ---- surroundings ------------------------------------------------------------------------------------------------ */

double MPI_Wtime(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

double MPI_Wtick(void)
{
    struct timespec t;
    clock_getres(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

int MPI_Get_processor_name(char *name, int *length)
{
    if (!name || !length)
        return GCM_FAIL(NULL, MPI_ERR_ARG);
    if (gethostname(name, MPI_MAX_PROCESSOR_NAME) != 0)
        return GCM_FAIL(NULL, MPI_ERR_OTHER);
    name[MPI_MAX_PROCESSOR_NAME - 1] = 0;
    *length = (int)strlen(name);
    return MPI_SUCCESS;
}

int MPI_Get_version(int *version, int *subversion)
{
    *version = MPI_VERSION;
    *subversion = MPI_SUBVERSION;
    return MPI_SUCCESS;
}

int MPI_Get_library_version(char *text, int *length)
{
    int v = gc_version();
    *length = snprintf(text, MPI_MAX_LIBRARY_VERSION_STRING, "gridcomm %d.%d.%d", v / 10000, v / 100 % 100, v % 100);
    return MPI_SUCCESS;
}

int MPI_Alloc_mem(MPI_Aint bytes, MPI_Info info, void *base)
{
    (void)info;
    void *memory = bytes < 0 ? NULL : malloc((size_t)bytes + 1);
    if (!memory || !base) {
        free(memory);
        return GCM_FAIL(NULL, bytes < 0 || !base ? MPI_ERR_ARG : MPI_ERR_NO_MEM);
    }
    memcpy(base, &memory, sizeof memory);
    return MPI_SUCCESS;
}

int MPI_Free_mem(void *base)
{
    free(base);
    return MPI_SUCCESS;
}

int MPI_Pcontrol(const int level, ...)
{
    (void)level;
    return MPI_SUCCESS;
}
