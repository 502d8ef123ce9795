/* CUDA's driver, run time and cuDNN without a GPU: just enough for XLA to compile a function.

CAPABILITY is the GPU's, such as 12.0. Memory of the GPU is addresses that nothing reads, kernels are
not run, and handles are pointers to nothing of interest. benchmarks/xla_ptx.py adds each other
function of the real libraries: it does nothing and returns 0, which is success.
*/

#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef unsigned long long address;

static const size_t TOTAL = 32ull << 30;
static char context[64];
static address next = 0x7f0000000000ull;

static int do_nothing(void) { return 0; }

static int make_handle(void **handle) { return *handle = malloc(64), 0; }

static int write_text(const char **text) { return *text = "made up", 0; }

/* The driver. The numbers of attributes are those of cuda.h (CUdevice_attribute). */

int cuDriverGetVersion(int *version) { return *version = 13000, 0; }
int cuDeviceGetCount(int *count) { return *count = 1, 0; }
int cuDeviceGet(int *device) { return *device = 0, 0; }
int cuDeviceGetName(char *name, int size) { return snprintf(name, size, "made-up GPU"), 0; }
int cuDeviceGetUuid(char *bytes) { return memset(bytes, 1, 16), 0; }
int cuDeviceGetUuid_v2(char *bytes) { return memset(bytes, 1, 16), 0; }
int cuDeviceTotalMem_v2(size_t *size) { return *size = TOTAL, 0; }
int cuDeviceGetPCIBusId(char *text, int size) { return snprintf(text, size, "0000:01:00.0"), 0; }

int cuDeviceGetAttribute(int *value, int attribute) {
    static const int values[][2] = {
        {1, 1024},        {2, 1024},    {3, 1024},  {4, 64},     {5, 2147483647}, {6, 65535},
        {7, 65535},       {8, 49152},   {9, 65536}, {10, 32},    {12, 65536},     {13, 1700000},
        {16, 108},        {36, 1200000}, {37, 5120}, {38, 40 << 20}, {39, 1536},  {81, 102400},
        {82, 65536},      {97, 101376}, {106, 32},  {111, 1024},
    };
    *value = 0;
    for (size_t row = 0; row < sizeof values / sizeof *values; row++)
        if (values[row][0] == attribute) *value = values[row][1];
    if (attribute == 75) *value = atoi(getenv("CAPABILITY"));
    if (attribute == 76) *value = atoi(strchr(getenv("CAPABILITY"), '.') + 1);
    return 0;
}

int cuDevicePrimaryCtxRetain(void **found) { return *found = context, 0; }
int cuDevicePrimaryCtxGetState(int device, unsigned *flags, int *active) {
    return *flags = 0, *active = 1, 0;
}
int cuCtxGetCurrent(void **found) { return *found = context, 0; }
int cuCtxGetDevice(int *device) { return *device = 0, 0; }
int cuCtxGetStreamPriorityRange(int *least, int *greatest) { return *least = *greatest = 0; }
int cuMemGetInfo_v2(size_t *free, size_t *total) { return *free = *total = TOTAL, 0; }
int cuMemAlloc_v2(address *pointer, size_t size) {
    return *pointer = next, next += (size + 0xfffff) & ~0xfffffull, 0;
}
int cuMemHostAlloc(void **pointer, size_t size) {
    return *pointer = aligned_alloc(4096, (size + 4095) & ~4095ull), 0;
}
int cuMemAllocHost_v2(void **pointer, size_t size) { return cuMemHostAlloc(pointer, size); }
int cuStreamCreate(void **stream) { return make_handle(stream); }
int cuStreamCreateWithPriority(void **stream) { return make_handle(stream); }
int cuEventCreate(void **event) { return make_handle(event); }
int cuModuleLoadData(void **module) { return make_handle(module); }
int cuModuleLoadDataEx(void **module) { return make_handle(module); }
int cuModuleGetFunction(void **function) { return make_handle(function); }
int cuFuncGetAttribute(int *value) { return *value = 32, 0; }
int cuOccupancyMaxActiveBlocksPerMultiprocessor(int *count) { return *count = 2, 0; }
int cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *count) { return *count = 2, 0; }
int cuGetErrorName(int error, const char **text) { return write_text(text); }
int cuGetErrorString(int error, const char **text) { return write_text(text); }
int cuStreamAddCallback(void *stream, void (*call)(void *, int, void *), void *data) {
    return call(stream, 0, data), 0;
}
int cuLaunchHostFunc(void *stream, void (*call)(void *), void *data) { return call(data), 0; }

int cuGetProcAddress_v2(const char *name, void **found, int version, address flags, int *status) {
    char newer[256];
    *found = NULL;
    for (int number = 4; number >= 2 && !*found; number--) {
        snprintf(newer, sizeof newer, "%s_v%d", name, number);
        *found = dlsym(RTLD_DEFAULT, newer);
    }
    if (!*found) *found = dlsym(RTLD_DEFAULT, name);
    if (!*found) *found = (void *)do_nothing;
    if (status) *status = 0;
    return 0;
}

/* NVML. */

int nvmlDeviceGetCount_v2(unsigned *count) { return *count = 1, 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device) { return *device = context, 0; }
int nvmlDeviceGetHandleByPciBusId_v2(const char *id, void **device) {
    return *device = context, 0;
}

/* The run time. */

int cudaGetDevice(int *device) { return *device = 0, 0; }
int cudaGetDeviceCount(int *count) { return *count = 1, 0; }
int cudaRuntimeGetVersion(int *version) { return *version = 12090, 0; }
int cudaDriverGetVersion(int *version) { return *version = 13000, 0; }
int cudaDeviceGetAttribute(int *value, int attribute) {
    return cuDeviceGetAttribute(value, attribute);
}
const char *cudaGetErrorString(int error) { return "made up"; }
const char *cudaGetErrorName(int error) { return "made up"; }
int cudaStreamCreateWithFlags(void **stream) { return make_handle(stream); }
int cudaEventCreateWithFlags(void **event) { return make_handle(event); }
int cudaFuncGetAttributes(char *attributes) { return memset(attributes, 0, 144), 0; }
int cudaGetFuncBySymbol(void **function) { return make_handle(function); }
int cudaGetDriverEntryPoint(const char *name, void **found, address flags, int *status) {
    return cuGetProcAddress_v2(name, found, 12000, flags, status);
}
void **__cudaRegisterFatBinary(void *binary) { return (void **)context; }

/* cuDNN. */

int cudnnCreate(void **handle) { return make_handle(handle); }
size_t cudnnGetVersion(void) { return 92800; }
size_t cudnnGetCudartVersion(void) { return 12090; }
const char *cudnnGetErrorString(int error) { return "made up"; }
int cudnnGetProperty(int property, int *value) {
    static const int version[] = {9, 28, 0};
    return *value = version[property], 0;
}
