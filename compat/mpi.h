/* mpi.h: a subset of MPI 3.1 over gridcomm, so that MPI programs run on it without a changed line.
 * SPDX-License-Identifier: MIT
 *
 *     gcmpicc prog.c -o prog && gcrun -n 8 ./prog         or:   cc prog.c mpi.c gridcomm.c -lpthread
 *
 * What is not declared here is not there: a program that needs it does not link. README.md beside this file lists both. The
 * meaning of every function is that of the standard (Message Passing Interface Forum: MPI 3.1, 2015); what a call costs, which
 * algorithm runs, and what environment variables do is gridcomm's affair (gridcomm.h).
 *
 * Threads: MPI_THREAD_MULTIPLE. Errors: the error codes are the error classes; MPI_ERRORS_ARE_FATAL, the default, prints what
 * failed and why and ends the job.
 */
#ifndef GRIDCOMM_MPI_H
#define GRIDCOMM_MPI_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define MPI_VERSION    3
#define MPI_SUBVERSION 1
#define GRIDCOMM_MPI   1                /* tells this mpi.h from others */

/* ---- handles and types ------------------------------------------------------------------------------------------- */

typedef struct gcm_comm *MPI_Comm;
typedef struct gcm_group *MPI_Group;
typedef struct gcm_type *MPI_Datatype;
typedef struct gcm_op *MPI_Op;
typedef struct gcm_errhandler *MPI_Errhandler;
typedef struct gcm_request *MPI_Request;
typedef struct gcm_message *MPI_Message;
typedef struct gcm_info *MPI_Info;      /* of hints there is only MPI_INFO_NULL */

typedef ptrdiff_t MPI_Aint;
typedef int64_t MPI_Count;
typedef int64_t MPI_Offset;
typedef int MPI_Fint;

typedef struct MPI_Status {
    int MPI_SOURCE, MPI_TAG, MPI_ERROR;
    int gcm_cancelled;
    size_t gcm_bytes;                   /* received */
} MPI_Status;

typedef void MPI_User_function(void *in, void *inout, int *count, MPI_Datatype *type);
typedef void MPI_Comm_errhandler_function(MPI_Comm *comm, int *code, ...);
typedef MPI_Comm_errhandler_function MPI_Comm_errhandler_fn;
typedef MPI_Comm_errhandler_function MPI_Handler_function;      /* MPI 1 */
typedef int MPI_Comm_copy_attr_function(MPI_Comm comm, int key, void *extra, void *value, void *out, int *flag);
typedef int MPI_Comm_delete_attr_function(MPI_Comm comm, int key, void *value, void *extra);
typedef MPI_Comm_copy_attr_function MPI_Copy_function;          /* MPI 1 */
typedef MPI_Comm_delete_attr_function MPI_Delete_function;

#define MPI_COMM_NULL       ((MPI_Comm)0)
#define MPI_GROUP_NULL      ((MPI_Group)0)
#define MPI_DATATYPE_NULL   ((MPI_Datatype)0)
#define MPI_OP_NULL         ((MPI_Op)0)
#define MPI_ERRHANDLER_NULL ((MPI_Errhandler)0)
#define MPI_REQUEST_NULL    ((MPI_Request)0)
#define MPI_MESSAGE_NULL    ((MPI_Message)0)
#define MPI_INFO_NULL       ((MPI_Info)0)

extern struct gcm_comm gcm_comm_world, gcm_comm_self;
extern struct gcm_group gcm_group_empty;
extern struct gcm_errhandler gcm_errors_are_fatal, gcm_errors_return;
extern struct gcm_message gcm_message_no_proc;
#define MPI_COMM_WORLD       (&gcm_comm_world)
#define MPI_COMM_SELF        (&gcm_comm_self)
#define MPI_GROUP_EMPTY      (&gcm_group_empty)
#define MPI_ERRORS_ARE_FATAL (&gcm_errors_are_fatal)
#define MPI_ERRORS_RETURN    (&gcm_errors_return)
#define MPI_MESSAGE_NO_PROC  (&gcm_message_no_proc)

extern struct gcm_type gcm_char, gcm_signed_char, gcm_unsigned_char, gcm_byte, gcm_packed, gcm_short, gcm_unsigned_short,
    gcm_int, gcm_unsigned, gcm_long, gcm_unsigned_long, gcm_long_long, gcm_unsigned_long_long, gcm_float, gcm_double,
    gcm_long_double, gcm_wchar, gcm_c_bool, gcm_int8, gcm_int16, gcm_int32, gcm_int64, gcm_uint8, gcm_uint16, gcm_uint32,
    gcm_uint64, gcm_aint, gcm_count, gcm_offset, gcm_c_float_complex, gcm_c_double_complex, gcm_c_long_double_complex,
    gcm_float_int, gcm_double_int, gcm_long_int, gcm_2int, gcm_short_int, gcm_long_double_int, gcm_lb, gcm_ub;
#define MPI_CHAR                    (&gcm_char)
#define MPI_SIGNED_CHAR             (&gcm_signed_char)
#define MPI_UNSIGNED_CHAR           (&gcm_unsigned_char)
#define MPI_BYTE                    (&gcm_byte)
#define MPI_PACKED                  (&gcm_packed)
#define MPI_SHORT                   (&gcm_short)
#define MPI_UNSIGNED_SHORT          (&gcm_unsigned_short)
#define MPI_INT                     (&gcm_int)
#define MPI_UNSIGNED                (&gcm_unsigned)
#define MPI_LONG                    (&gcm_long)
#define MPI_UNSIGNED_LONG           (&gcm_unsigned_long)
#define MPI_LONG_LONG_INT           (&gcm_long_long)
#define MPI_LONG_LONG               (&gcm_long_long)
#define MPI_UNSIGNED_LONG_LONG      (&gcm_unsigned_long_long)
#define MPI_FLOAT                   (&gcm_float)
#define MPI_DOUBLE                  (&gcm_double)
#define MPI_LONG_DOUBLE             (&gcm_long_double)
#define MPI_WCHAR                   (&gcm_wchar)
#define MPI_C_BOOL                  (&gcm_c_bool)
#define MPI_INT8_T                  (&gcm_int8)
#define MPI_INT16_T                 (&gcm_int16)
#define MPI_INT32_T                 (&gcm_int32)
#define MPI_INT64_T                 (&gcm_int64)
#define MPI_UINT8_T                 (&gcm_uint8)
#define MPI_UINT16_T                (&gcm_uint16)
#define MPI_UINT32_T                (&gcm_uint32)
#define MPI_UINT64_T                (&gcm_uint64)
#define MPI_AINT                    (&gcm_aint)
#define MPI_COUNT                   (&gcm_count)
#define MPI_OFFSET                  (&gcm_offset)
#define MPI_C_COMPLEX               (&gcm_c_float_complex)
#define MPI_C_FLOAT_COMPLEX         (&gcm_c_float_complex)
#define MPI_C_DOUBLE_COMPLEX        (&gcm_c_double_complex)
#define MPI_C_LONG_DOUBLE_COMPLEX   (&gcm_c_long_double_complex)
#define MPI_CXX_BOOL                (&gcm_c_bool)
#define MPI_CXX_FLOAT_COMPLEX       (&gcm_c_float_complex)
#define MPI_CXX_DOUBLE_COMPLEX      (&gcm_c_double_complex)
#define MPI_CXX_LONG_DOUBLE_COMPLEX (&gcm_c_long_double_complex)
#define MPI_FLOAT_INT               (&gcm_float_int)
#define MPI_DOUBLE_INT              (&gcm_double_int)
#define MPI_LONG_INT                (&gcm_long_int)
#define MPI_2INT                    (&gcm_2int)
#define MPI_SHORT_INT               (&gcm_short_int)
#define MPI_LONG_DOUBLE_INT         (&gcm_long_double_int)
#define MPI_LB                      (&gcm_lb)           /* MPI 1: for MPI_Type_struct alone */
#define MPI_UB                      (&gcm_ub)

extern struct gcm_op gcm_max, gcm_min, gcm_sum, gcm_prod, gcm_land, gcm_band, gcm_lor, gcm_bor, gcm_lxor, gcm_bxor, gcm_maxloc,
    gcm_minloc;
#define MPI_MAX    (&gcm_max)
#define MPI_MIN    (&gcm_min)
#define MPI_SUM    (&gcm_sum)
#define MPI_PROD   (&gcm_prod)
#define MPI_LAND   (&gcm_land)
#define MPI_BAND   (&gcm_band)
#define MPI_LOR    (&gcm_lor)
#define MPI_BOR    (&gcm_bor)
#define MPI_LXOR   (&gcm_lxor)
#define MPI_BXOR   (&gcm_bxor)
#define MPI_MAXLOC (&gcm_maxloc)
#define MPI_MINLOC (&gcm_minloc)

/* ---- constants --------------------------------------------------------------------------------------------------- */

#define MPI_ANY_SOURCE (-1)
#define MPI_PROC_NULL  (-2)
#define MPI_ROOT       (-3)
#define MPI_ANY_TAG    (-1)
#define MPI_UNDEFINED  (-32766)
#define MPI_BOTTOM     ((void *)0)
#define MPI_IN_PLACE   ((void *)1)
#define MPI_STATUS_IGNORE   ((MPI_Status *)0)
#define MPI_STATUSES_IGNORE ((MPI_Status *)0)
#define MPI_BSEND_OVERHEAD  64          /* bytes of an attached buffer for each message in it */

enum { MPI_MAX_PROCESSOR_NAME = 256, MPI_MAX_ERROR_STRING = 512, MPI_MAX_OBJECT_NAME = 128,
       MPI_MAX_LIBRARY_VERSION_STRING = 256 };
enum { MPI_IDENT, MPI_CONGRUENT, MPI_SIMILAR, MPI_UNEQUAL };
enum { MPI_THREAD_SINGLE, MPI_THREAD_FUNNELED, MPI_THREAD_SERIALIZED, MPI_THREAD_MULTIPLE };
enum { MPI_COMM_TYPE_SHARED = 1 };
enum { MPI_ORDER_C = 1, MPI_ORDER_FORTRAN };
enum { MPI_CART = 1, MPI_GRAPH, MPI_DIST_GRAPH };       /* of which there is only MPI_CART */
enum { MPI_TAG_UB = 1, MPI_HOST, MPI_IO, MPI_WTIME_IS_GLOBAL, MPI_UNIVERSE_SIZE, MPI_LASTUSEDCODE, MPI_APPNUM };
enum { MPI_KEYVAL_INVALID = 0 };
#define MPI_COMM_NULL_COPY_FN   ((MPI_Comm_copy_attr_function *)0)
#define MPI_COMM_NULL_DELETE_FN ((MPI_Comm_delete_attr_function *)0)
#define MPI_NULL_COPY_FN        MPI_COMM_NULL_COPY_FN           /* MPI 1 */
#define MPI_NULL_DELETE_FN      MPI_COMM_NULL_DELETE_FN
#define MPI_DUP_FN              MPI_COMM_DUP_FN

/* Error codes are classes. Macros, because programs look for them with #ifdef. */
#define MPI_SUCCESS          0
#define MPI_ERR_BUFFER       1
#define MPI_ERR_COUNT        2
#define MPI_ERR_TYPE         3
#define MPI_ERR_TAG          4
#define MPI_ERR_COMM         5
#define MPI_ERR_RANK         6
#define MPI_ERR_REQUEST      7
#define MPI_ERR_ROOT         8
#define MPI_ERR_GROUP        9
#define MPI_ERR_OP           10
#define MPI_ERR_TOPOLOGY     11
#define MPI_ERR_DIMS         12
#define MPI_ERR_ARG          13
#define MPI_ERR_UNKNOWN      14
#define MPI_ERR_TRUNCATE     15
#define MPI_ERR_OTHER        16
#define MPI_ERR_INTERN       17
#define MPI_ERR_PENDING      18
#define MPI_ERR_IN_STATUS    19
#define MPI_ERR_NO_MEM       20
#define MPI_ERR_KEYVAL       21
#define MPI_ERR_INFO         22
#define MPI_ERR_UNSUPPORTED_OPERATION 23
#define MPI_ERR_LASTCODE     63

/* ---- life, environment, errors ----------------------------------------------------------------------------------- */

int MPI_Init(int *argc, char ***argv);
int MPI_Init_thread(int *argc, char ***argv, int required, int *provided);
int MPI_Initialized(int *flag);
int MPI_Finalize(void);
int MPI_Finalized(int *flag);
int MPI_Query_thread(int *provided);
int MPI_Is_thread_main(int *flag);
int MPI_Abort(MPI_Comm comm, int code);
double MPI_Wtime(void);
double MPI_Wtick(void);
int MPI_Get_processor_name(char *name, int *length);
int MPI_Get_version(int *version, int *subversion);
int MPI_Get_library_version(char *text, int *length);
int MPI_Alloc_mem(MPI_Aint bytes, MPI_Info info, void *base);
int MPI_Free_mem(void *base);
int MPI_Pcontrol(const int level, ...);

int MPI_Error_string(int code, char *text, int *length);
int MPI_Error_class(int code, int *error_class);
int MPI_Comm_create_errhandler(MPI_Comm_errhandler_function *fn, MPI_Errhandler *handler);
int MPI_Comm_set_errhandler(MPI_Comm comm, MPI_Errhandler handler);
int MPI_Comm_get_errhandler(MPI_Comm comm, MPI_Errhandler *handler);
int MPI_Comm_call_errhandler(MPI_Comm comm, int code);
int MPI_Errhandler_free(MPI_Errhandler *handler);

/* ---- communicators and groups ------------------------------------------------------------------------------------ */

int MPI_Comm_rank(MPI_Comm comm, int *rank);
int MPI_Comm_size(MPI_Comm comm, int *size);
int MPI_Comm_dup(MPI_Comm comm, MPI_Comm *out);
int MPI_Comm_split(MPI_Comm comm, int color, int key, MPI_Comm *out);
int MPI_Comm_split_type(MPI_Comm comm, int type, int key, MPI_Info info, MPI_Comm *out);
int MPI_Comm_create(MPI_Comm comm, MPI_Group group, MPI_Comm *out);
int MPI_Comm_create_group(MPI_Comm comm, MPI_Group group, int tag, MPI_Comm *out);
int MPI_Comm_compare(MPI_Comm a, MPI_Comm b, int *result);
int MPI_Comm_free(MPI_Comm *comm);
int MPI_Comm_set_name(MPI_Comm comm, const char *name);
int MPI_Comm_get_name(MPI_Comm comm, char *name, int *length);
int MPI_Comm_create_keyval(MPI_Comm_copy_attr_function *copy, MPI_Comm_delete_attr_function *end, int *key, void *extra);
int MPI_Comm_free_keyval(int *key);
int MPI_Comm_set_attr(MPI_Comm comm, int key, void *value);
int MPI_Comm_get_attr(MPI_Comm comm, int key, void *value, int *flag);
int MPI_Comm_delete_attr(MPI_Comm comm, int key);
int MPI_COMM_DUP_FN(MPI_Comm comm, int key, void *extra, void *value, void *out, int *flag);
int MPI_Comm_test_inter(MPI_Comm comm, int *flag);
int MPI_Comm_group(MPI_Comm comm, MPI_Group *group);

int MPI_Group_size(MPI_Group group, int *size);
int MPI_Group_rank(MPI_Group group, int *rank);
int MPI_Group_translate_ranks(MPI_Group from, int n, const int ranks[], MPI_Group to, int out[]);
int MPI_Group_compare(MPI_Group a, MPI_Group b, int *result);
int MPI_Group_union(MPI_Group a, MPI_Group b, MPI_Group *out);
int MPI_Group_intersection(MPI_Group a, MPI_Group b, MPI_Group *out);
int MPI_Group_difference(MPI_Group a, MPI_Group b, MPI_Group *out);
int MPI_Group_incl(MPI_Group group, int n, const int ranks[], MPI_Group *out);
int MPI_Group_excl(MPI_Group group, int n, const int ranks[], MPI_Group *out);
int MPI_Group_range_incl(MPI_Group group, int n, int ranges[][3], MPI_Group *out);
int MPI_Group_range_excl(MPI_Group group, int n, int ranges[][3], MPI_Group *out);
int MPI_Group_free(MPI_Group *group);

/* reorder is not used: ranks stay what they are. */
int MPI_Cart_create(MPI_Comm comm, int ndims, const int dims[], const int periods[], int reorder, MPI_Comm *out);
int MPI_Cart_sub(MPI_Comm comm, const int remain[], MPI_Comm *out);
int MPI_Cart_map(MPI_Comm comm, int ndims, const int dims[], const int periods[], int *rank);
int MPI_Cart_get(MPI_Comm comm, int maxdims, int dims[], int periods[], int coords[]);
int MPI_Cart_coords(MPI_Comm comm, int rank, int maxdims, int coords[]);
int MPI_Cart_rank(MPI_Comm comm, const int coords[], int *rank);
int MPI_Cart_shift(MPI_Comm comm, int direction, int steps, int *source, int *dest);
int MPI_Cartdim_get(MPI_Comm comm, int *ndims);
int MPI_Dims_create(int nnodes, int ndims, int dims[]);
int MPI_Topo_test(MPI_Comm comm, int *status);

/* ---- messages ---------------------------------------------------------------------------------------------------- */

int MPI_Send(const void *buf, int count, MPI_Datatype type, int dest, int tag, MPI_Comm comm);
int MPI_Ssend(const void *buf, int count, MPI_Datatype type, int dest, int tag, MPI_Comm comm);
int MPI_Rsend(const void *buf, int count, MPI_Datatype type, int dest, int tag, MPI_Comm comm);
int MPI_Bsend(const void *buf, int count, MPI_Datatype type, int dest, int tag, MPI_Comm comm);
int MPI_Isend(const void *buf, int count, MPI_Datatype type, int dest, int tag, MPI_Comm comm, MPI_Request *request);
int MPI_Issend(const void *buf, int count, MPI_Datatype type, int dest, int tag, MPI_Comm comm, MPI_Request *request);
int MPI_Irsend(const void *buf, int count, MPI_Datatype type, int dest, int tag, MPI_Comm comm, MPI_Request *request);
int MPI_Ibsend(const void *buf, int count, MPI_Datatype type, int dest, int tag, MPI_Comm comm, MPI_Request *request);
int MPI_Buffer_attach(void *buffer, int bytes);
int MPI_Buffer_detach(void *buffer, int *bytes);
int MPI_Recv(void *buf, int count, MPI_Datatype type, int source, int tag, MPI_Comm comm, MPI_Status *status);
int MPI_Irecv(void *buf, int count, MPI_Datatype type, int source, int tag, MPI_Comm comm, MPI_Request *request);
int MPI_Send_init(const void *buf, int count, MPI_Datatype type, int dest, int tag, MPI_Comm comm, MPI_Request *request);
int MPI_Ssend_init(const void *buf, int count, MPI_Datatype type, int dest, int tag, MPI_Comm comm, MPI_Request *request);
int MPI_Rsend_init(const void *buf, int count, MPI_Datatype type, int dest, int tag, MPI_Comm comm, MPI_Request *request);
int MPI_Bsend_init(const void *buf, int count, MPI_Datatype type, int dest, int tag, MPI_Comm comm, MPI_Request *request);
int MPI_Recv_init(void *buf, int count, MPI_Datatype type, int source, int tag, MPI_Comm comm, MPI_Request *request);
int MPI_Start(MPI_Request *request);
int MPI_Startall(int n, MPI_Request requests[]);
int MPI_Sendrecv(const void *send, int send_count, MPI_Datatype send_type, int dest, int send_tag,
                 void *recv, int recv_count, MPI_Datatype recv_type, int source, int recv_tag, MPI_Comm comm,
                 MPI_Status *status);
int MPI_Sendrecv_replace(void *buf, int count, MPI_Datatype type, int dest, int send_tag, int source, int recv_tag,
                         MPI_Comm comm, MPI_Status *status);
int MPI_Probe(int source, int tag, MPI_Comm comm, MPI_Status *status);
int MPI_Iprobe(int source, int tag, MPI_Comm comm, int *flag, MPI_Status *status);
int MPI_Mprobe(int source, int tag, MPI_Comm comm, MPI_Message *message, MPI_Status *status);
int MPI_Improbe(int source, int tag, MPI_Comm comm, int *flag, MPI_Message *message, MPI_Status *status);
int MPI_Mrecv(void *buf, int count, MPI_Datatype type, MPI_Message *message, MPI_Status *status);
int MPI_Imrecv(void *buf, int count, MPI_Datatype type, MPI_Message *message, MPI_Request *request);

int MPI_Wait(MPI_Request *request, MPI_Status *status);
int MPI_Test(MPI_Request *request, int *flag, MPI_Status *status);
int MPI_Waitall(int n, MPI_Request requests[], MPI_Status statuses[]);
int MPI_Testall(int n, MPI_Request requests[], int *flag, MPI_Status statuses[]);
int MPI_Waitany(int n, MPI_Request requests[], int *index, MPI_Status *status);
int MPI_Testany(int n, MPI_Request requests[], int *index, int *flag, MPI_Status *status);
int MPI_Waitsome(int n, MPI_Request requests[], int *done, int indices[], MPI_Status statuses[]);
int MPI_Testsome(int n, MPI_Request requests[], int *done, int indices[], MPI_Status statuses[]);
int MPI_Request_free(MPI_Request *request);
int MPI_Request_get_status(MPI_Request request, int *flag, MPI_Status *status);
int MPI_Cancel(MPI_Request *request);
int MPI_Test_cancelled(const MPI_Status *status, int *flag);
int MPI_Get_count(const MPI_Status *status, MPI_Datatype type, int *count);
int MPI_Get_elements(const MPI_Status *status, MPI_Datatype type, int *count);

/* ---- data types -------------------------------------------------------------------------------------------------- */

int MPI_Type_contiguous(int count, MPI_Datatype type, MPI_Datatype *out);
int MPI_Type_vector(int count, int length, int stride, MPI_Datatype type, MPI_Datatype *out);
int MPI_Type_create_hvector(int count, int length, MPI_Aint stride, MPI_Datatype type, MPI_Datatype *out);
int MPI_Type_indexed(int count, const int lengths[], const int displs[], MPI_Datatype type, MPI_Datatype *out);
int MPI_Type_create_hindexed(int count, const int lengths[], const MPI_Aint displs[], MPI_Datatype type, MPI_Datatype *out);
int MPI_Type_create_indexed_block(int count, int length, const int displs[], MPI_Datatype type, MPI_Datatype *out);
int MPI_Type_create_hindexed_block(int count, int length, const MPI_Aint displs[], MPI_Datatype type, MPI_Datatype *out);
int MPI_Type_create_struct(int count, const int lengths[], const MPI_Aint displs[], const MPI_Datatype types[],
                           MPI_Datatype *out);
int MPI_Type_create_subarray(int ndims, const int sizes[], const int subsizes[], const int starts[], int order,
                             MPI_Datatype type, MPI_Datatype *out);
int MPI_Type_create_resized(MPI_Datatype type, MPI_Aint lb, MPI_Aint extent, MPI_Datatype *out);
int MPI_Type_dup(MPI_Datatype type, MPI_Datatype *out);
int MPI_Type_commit(MPI_Datatype *type);
int MPI_Type_free(MPI_Datatype *type);
int MPI_Type_size(MPI_Datatype type, int *size);
int MPI_Type_size_x(MPI_Datatype type, MPI_Count *size);
int MPI_Type_get_extent(MPI_Datatype type, MPI_Aint *lb, MPI_Aint *extent);
int MPI_Type_get_true_extent(MPI_Datatype type, MPI_Aint *lb, MPI_Aint *extent);
int MPI_Type_set_name(MPI_Datatype type, const char *name);
int MPI_Type_get_name(MPI_Datatype type, char *name, int *length);
int MPI_Get_address(const void *at, MPI_Aint *address);
MPI_Aint MPI_Aint_add(MPI_Aint base, MPI_Aint offset);
MPI_Aint MPI_Aint_diff(MPI_Aint a, MPI_Aint b);
int MPI_Pack(const void *in, int count, MPI_Datatype type, void *out, int out_bytes, int *position, MPI_Comm comm);
int MPI_Unpack(const void *in, int in_bytes, int *position, void *out, int count, MPI_Datatype type, MPI_Comm comm);
int MPI_Pack_size(int count, MPI_Datatype type, MPI_Comm comm, int *bytes);

/* ---- collectives and their operations ---------------------------------------------------------------------------- */

int MPI_Barrier(MPI_Comm comm);
int MPI_Bcast(void *buf, int count, MPI_Datatype type, int root, MPI_Comm comm);
int MPI_Gather(const void *send, int send_count, MPI_Datatype send_type, void *recv, int recv_count, MPI_Datatype recv_type,
               int root, MPI_Comm comm);
int MPI_Gatherv(const void *send, int send_count, MPI_Datatype send_type, void *recv, const int recv_counts[],
                const int displs[], MPI_Datatype recv_type, int root, MPI_Comm comm);
int MPI_Scatter(const void *send, int send_count, MPI_Datatype send_type, void *recv, int recv_count, MPI_Datatype recv_type,
                int root, MPI_Comm comm);
int MPI_Scatterv(const void *send, const int send_counts[], const int displs[], MPI_Datatype send_type, void *recv,
                 int recv_count, MPI_Datatype recv_type, int root, MPI_Comm comm);
int MPI_Allgather(const void *send, int send_count, MPI_Datatype send_type, void *recv, int recv_count,
                  MPI_Datatype recv_type, MPI_Comm comm);
int MPI_Allgatherv(const void *send, int send_count, MPI_Datatype send_type, void *recv, const int recv_counts[],
                   const int displs[], MPI_Datatype recv_type, MPI_Comm comm);
int MPI_Alltoall(const void *send, int send_count, MPI_Datatype send_type, void *recv, int recv_count,
                 MPI_Datatype recv_type, MPI_Comm comm);
int MPI_Alltoallv(const void *send, const int send_counts[], const int send_displs[], MPI_Datatype send_type, void *recv,
                  const int recv_counts[], const int recv_displs[], MPI_Datatype recv_type, MPI_Comm comm);
int MPI_Alltoallw(const void *send, const int send_counts[], const int send_displs[], const MPI_Datatype send_types[],
                  void *recv, const int recv_counts[], const int recv_displs[], const MPI_Datatype recv_types[], MPI_Comm comm);
int MPI_Reduce(const void *send, void *recv, int count, MPI_Datatype type, MPI_Op op, int root, MPI_Comm comm);
int MPI_Allreduce(const void *send, void *recv, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm);
int MPI_Reduce_scatter(const void *send, void *recv, const int counts[], MPI_Datatype type, MPI_Op op, MPI_Comm comm);
int MPI_Reduce_scatter_block(const void *send, void *recv, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm);
int MPI_Scan(const void *send, void *recv, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm);
int MPI_Exscan(const void *send, void *recv, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm);

int MPI_Ibarrier(MPI_Comm comm, MPI_Request *request);
int MPI_Ibcast(void *buf, int count, MPI_Datatype type, int root, MPI_Comm comm, MPI_Request *request);
int MPI_Igather(const void *send, int send_count, MPI_Datatype send_type, void *recv, int recv_count, MPI_Datatype recv_type,
                int root, MPI_Comm comm, MPI_Request *request);
int MPI_Igatherv(const void *send, int send_count, MPI_Datatype send_type, void *recv, const int recv_counts[],
                 const int displs[], MPI_Datatype recv_type, int root, MPI_Comm comm, MPI_Request *request);
int MPI_Iscatter(const void *send, int send_count, MPI_Datatype send_type, void *recv, int recv_count, MPI_Datatype recv_type,
                 int root, MPI_Comm comm, MPI_Request *request);
int MPI_Iscatterv(const void *send, const int send_counts[], const int displs[], MPI_Datatype send_type, void *recv,
                  int recv_count, MPI_Datatype recv_type, int root, MPI_Comm comm, MPI_Request *request);
int MPI_Iallgather(const void *send, int send_count, MPI_Datatype send_type, void *recv, int recv_count,
                   MPI_Datatype recv_type, MPI_Comm comm, MPI_Request *request);
int MPI_Iallgatherv(const void *send, int send_count, MPI_Datatype send_type, void *recv, const int recv_counts[],
                    const int displs[], MPI_Datatype recv_type, MPI_Comm comm, MPI_Request *request);
int MPI_Ialltoall(const void *send, int send_count, MPI_Datatype send_type, void *recv, int recv_count,
                  MPI_Datatype recv_type, MPI_Comm comm, MPI_Request *request);
int MPI_Ialltoallv(const void *send, const int send_counts[], const int send_displs[], MPI_Datatype send_type, void *recv,
                   const int recv_counts[], const int recv_displs[], MPI_Datatype recv_type, MPI_Comm comm,
                   MPI_Request *request);
int MPI_Ialltoallw(const void *send, const int send_counts[], const int send_displs[], const MPI_Datatype send_types[],
                   void *recv, const int recv_counts[], const int recv_displs[], const MPI_Datatype recv_types[], MPI_Comm comm,
                   MPI_Request *request);
int MPI_Ireduce(const void *send, void *recv, int count, MPI_Datatype type, MPI_Op op, int root, MPI_Comm comm,
                MPI_Request *request);
int MPI_Iallreduce(const void *send, void *recv, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm, MPI_Request *request);
int MPI_Ireduce_scatter(const void *send, void *recv, const int counts[], MPI_Datatype type, MPI_Op op, MPI_Comm comm,
                        MPI_Request *request);
int MPI_Ireduce_scatter_block(const void *send, void *recv, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm,
                              MPI_Request *request);
int MPI_Iscan(const void *send, void *recv, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm, MPI_Request *request);
int MPI_Iexscan(const void *send, void *recv, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm, MPI_Request *request);

int MPI_Op_create(MPI_User_function *fn, int commute, MPI_Op *op);
int MPI_Op_free(MPI_Op *op);
int MPI_Op_commutative(MPI_Op op, int *commute);
int MPI_Reduce_local(const void *in, void *inout, int count, MPI_Datatype type, MPI_Op op);

/* ---- handles as numbers, for libraries that have a Fortran side --------------------------------------------------- */

MPI_Fint MPI_Comm_c2f(MPI_Comm comm);
MPI_Comm MPI_Comm_f2c(MPI_Fint comm);
MPI_Fint MPI_Group_c2f(MPI_Group group);
MPI_Group MPI_Group_f2c(MPI_Fint group);
MPI_Fint MPI_Type_c2f(MPI_Datatype type);
MPI_Datatype MPI_Type_f2c(MPI_Fint type);
MPI_Fint MPI_Op_c2f(MPI_Op op);
MPI_Op MPI_Op_f2c(MPI_Fint op);
MPI_Fint MPI_Request_c2f(MPI_Request request);
MPI_Request MPI_Request_f2c(MPI_Fint request);

/* ---- MPI 1: names that MPI 3 has taken away and programs still use ------------------------------------------------ */

int MPI_Address(void *at, MPI_Aint *address);
int MPI_Type_extent(MPI_Datatype type, MPI_Aint *extent);
int MPI_Type_lb(MPI_Datatype type, MPI_Aint *lb);
int MPI_Type_ub(MPI_Datatype type, MPI_Aint *ub);
int MPI_Type_hvector(int count, int length, MPI_Aint stride, MPI_Datatype type, MPI_Datatype *out);
int MPI_Type_hindexed(int count, int lengths[], MPI_Aint displs[], MPI_Datatype type, MPI_Datatype *out);
int MPI_Type_struct(int count, int lengths[], MPI_Aint displs[], MPI_Datatype types[], MPI_Datatype *out);
int MPI_Errhandler_create(MPI_Handler_function *fn, MPI_Errhandler *handler);
int MPI_Errhandler_set(MPI_Comm comm, MPI_Errhandler handler);
int MPI_Errhandler_get(MPI_Comm comm, MPI_Errhandler *handler);
int MPI_Keyval_create(MPI_Copy_function *copy, MPI_Delete_function *end, int *key, void *extra);
int MPI_Keyval_free(int *key);
int MPI_Attr_put(MPI_Comm comm, int key, void *value);
int MPI_Attr_get(MPI_Comm comm, int key, void *value, int *flag);
int MPI_Attr_delete(MPI_Comm comm, int key);

#ifdef __cplusplus
}
#endif
#endif
