/* handle.c: numbers for handles, which C programs hand to Fortran's side of a library and get back.
 * SPDX-License-Identifier: MIT
 *
 * Few handles ever get one, so they are looked up one after another. 0 is the null handle of each kind.
 */
#include "mpi_int.h"

#include <pthread.h>

static struct handles { pthread_mutex_t lock; void **list; int n, room; } handles = { .lock = PTHREAD_MUTEX_INITIALIZER };

/* Where a handle is; or where the first is free, for NULL: n if none. */
static int handle_find(const void *handle)
{
    int i = 0;
    while (i < handles.n && handles.list[i] != handle)
        i++;
    return i;
}

static bool handle_grow(void)
{
    int room = handles.room ? 2 * handles.room : 16;
    void **list = realloc(handles.list, (size_t)room * sizeof(void *));
    if (!list)
        return false;
    handles.list = list;
    handles.room = room;
    return true;
}

static MPI_Fint handle_number(const char *call, void *handle)
{
    if (!handle)
        return 0;
    pthread_mutex_lock(&handles.lock);
    int i = handle_find(handle);
    if (i == handles.n)
        i = handle_find(NULL);
    bool known = i < handles.room || handle_grow();
    if (known) {
        ((gcm_object *)handle)->numbered = true;   /* all that has handles begins with one */
        handles.list[i] = handle;
        handles.n = i == handles.n ? i + 1 : handles.n;
    }
    pthread_mutex_unlock(&handles.lock);
    if (!known)
        gcm_error(NULL, call, MPI_ERR_NO_MEM, NULL);
    return known ? i + 1 : 0;
}

static void *handle_of(MPI_Fint number)
{
    pthread_mutex_lock(&handles.lock);
    void *handle = number > 0 && number <= handles.n ? handles.list[number - 1] : NULL;
    pthread_mutex_unlock(&handles.lock);
    return handle;
}

GCM void gcm_handle_forget(const void *handle)
{
    pthread_mutex_lock(&handles.lock);
    int i = handle_find(handle);
    if (i < handles.n)
        handles.list[i] = NULL;
    pthread_mutex_unlock(&handles.lock);
}

GCM void gcm_handles_end(void)
{
    free(handles.list);
    handles.list = NULL;
    handles.n = handles.room = 0;
}

MPI_Fint MPI_Comm_c2f(MPI_Comm comm) { return handle_number(__func__, comm); }
MPI_Comm MPI_Comm_f2c(MPI_Fint comm) { return handle_of(comm); }
MPI_Fint MPI_Group_c2f(MPI_Group group) { return handle_number(__func__, group); }
MPI_Group MPI_Group_f2c(MPI_Fint group) { return handle_of(group); }
MPI_Fint MPI_Type_c2f(MPI_Datatype type) { return handle_number(__func__, type); }
MPI_Datatype MPI_Type_f2c(MPI_Fint type) { return handle_of(type); }
MPI_Fint MPI_Op_c2f(MPI_Op op) { return handle_number(__func__, op); }
MPI_Op MPI_Op_f2c(MPI_Fint op) { return handle_of(op); }
MPI_Fint MPI_Request_c2f(MPI_Request request) { return handle_number(__func__, request); }
MPI_Request MPI_Request_f2c(MPI_Fint request) { return handle_of(request); }
