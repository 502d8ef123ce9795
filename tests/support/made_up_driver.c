/* A made-up NVIDIA driver: libcuda.so.1 and libnvidia-ml.so.1 in one file, for tests without a GPU.

It answers as driver 580.159.04 did on an H200 when something was wrong. Environment variables
describe the machine:

  MADE_UP_VERSION  the newest CUDA that the driver knows, such as 12040
  MADE_UP_DRIVER   the driver's own version, such as 550.54.14
  MADE_UP_GPUS     the GPUs, separated by ";": NAME,MAJOR,MINOR,FREE,TOTAL,MODE,MIG (bytes; modes of
                   nvml.h)
  MADE_UP_DEVICES  the folder of the device files, in place of /dev
  MADE_UP_FAULT    crash, hang, stub, nvml (NVML fails), or a code that cuInit returns
  MADE_UP_LOG      a file to which cuInit appends a line for each call
*/

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

enum { OUT_OF_MEMORY = 2, STUB = 34, NO_DEVICE = 100, INVALID_DEVICE = 101, UNKNOWN = 999 };

struct gpu {
    char name[96];
    int major, minor, mode, mig;
    unsigned long long free, total;
};

struct memory {
    unsigned long long total, free, used;
};

static struct gpu gpus[16];
static int there, visible[16], used;

static const char *setting(const char *name) {
    const char *value = getenv(name);
    return value ? value : "";
}

static int has_fault(const char *name) { return strcmp(setting("MADE_UP_FAULT"), name) == 0; }

static void read_gpus(void) {
    char text[4096];
    snprintf(text, sizeof text, "%s", setting("MADE_UP_GPUS"));
    there = 0;
    for (char *next, *part = strtok_r(text, ";", &next); part; part = strtok_r(NULL, ";", &next)) {
        struct gpu *gpu = &gpus[there++];
        sscanf(part, "%95[^,],%d,%d,%llu,%llu,%d,%d", gpu->name, &gpu->major, &gpu->minor, &gpu->free,
               &gpu->total, &gpu->mode, &gpu->mig);
    }
}

static void format_uuid(int index, char *text, size_t size) {
    snprintf(text, size, "GPU-%08x-0000-4000-8000-000000000000", index + 1);
}

/* Return the number of the GPU that an entry of CUDA_VISIBLE_DEVICES names, or -1. */
static int find_gpu(const char *entry) {
    while (*entry == ' ') entry++;
    for (int index = 0; index < there; index++) {
        char number[16], uuid[64];
        snprintf(number, sizeof number, "%d", index);
        format_uuid(index, uuid, sizeof uuid);
        if (!strcmp(entry, number)) return index;
        if (strlen(entry) > 4 && !strncmp(entry, uuid, strlen(entry))) return index;
    }
    return -1;
}

static int choose_gpus(void) {
    const char *value = getenv("CUDA_VISIBLE_DEVICES");
    used = 0;
    if (!value) {
        while (used < there) visible[used] = used, used++;
        return used ? 0 : NO_DEVICE;
    }
    char text[1024];
    snprintf(text, sizeof text, "%s", value);
    for (char *next, *part = strtok_r(text, ",", &next); part; part = strtok_r(NULL, ",", &next)) {
        int index = find_gpu(part);
        if (index < 0) break; /* what follows is dropped without a word */
        for (int other = 0; other < used; other++)
            if (visible[other] == index) return INVALID_DEVICE;
        visible[used++] = index;
    }
    return used ? 0 : NO_DEVICE;
}

static int is_device(const char *name) {
    char path[1024];
    struct stat status;
    snprintf(path, sizeof path, "%s/%s", setting("MADE_UP_DEVICES"), name);
    return !stat(path, &status) && S_ISCHR(status.st_mode) && !access(path, R_OK | W_OK);
}

int cuDriverGetVersion(int *version) {
    if (has_fault("stub")) return STUB;
    if (has_fault("crash")) raise(SIGSEGV);
    if (has_fault("hang")) sleep(60);
    *version = atoi(setting("MADE_UP_VERSION"));
    return 0;
}

int cuInit(unsigned flags) {
    struct rlimit limit;
    FILE *log = fopen(setting("MADE_UP_LOG"), "a");
    (void)flags;
    if (log) fputs("cuInit\n", log), fclose(log);
    if (atoi(setting("MADE_UP_FAULT"))) return atoi(setting("MADE_UP_FAULT"));
    getrlimit(RLIMIT_AS, &limit);
    if (limit.rlim_cur < 32000000000ull) return OUT_OF_MEMORY;
    if (!is_device("nvidiactl") || !is_device("nvidia0")) return NO_DEVICE;
    if (!is_device("nvidia-uvm")) return UNKNOWN;
    read_gpus();
    return choose_gpus();
}

int cuDeviceGetCount(int *count) { return *count = used, 0; }
int cuDeviceGet(int *device, int index) { return *device = visible[index], 0; }
int cuDeviceGetName(char *name, int size, int device) {
    return snprintf(name, size, "%s", gpus[device].name), 0;
}
int cuDeviceGetAttribute(int *value, int attribute, int device) {
    return *value = attribute == 75 ? gpus[device].major : gpus[device].minor, 0;
}
int cuDeviceGetPCIBusId(char *text, int size, int device) {
    return snprintf(text, size, "0000:%02x:00.0", device + 1), 0;
}
int cuDeviceTotalMem_v2(size_t *size, int device) { return *size = gpus[device].total, 0; }
int cuDeviceGetUuid(unsigned char *bytes, int device) {
    memset(bytes, 0, 16);
    bytes[3] = device + 1, bytes[6] = 0x40, bytes[8] = 0x80;
    return 0;
}

int nvmlInit_v2(void) { return read_gpus(), has_fault("nvml") ? 9 : 0; }
int nvmlSystemGetDriverVersion(char *text, unsigned size) {
    return snprintf(text, size, "%s", setting("MADE_UP_DRIVER")), 0;
}
int nvmlDeviceGetCount_v2(unsigned *count) { return *count = there, 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, struct gpu **device) {
    return *device = &gpus[index], 0;
}
int nvmlDeviceGetName(struct gpu *gpu, char *text, unsigned size) {
    return snprintf(text, size, "%s", gpu->name), 0;
}
int nvmlDeviceGetUUID(struct gpu *gpu, char *text, unsigned size) {
    return format_uuid(gpu - gpus, text, size), 0;
}
int nvmlDeviceGetCudaComputeCapability(struct gpu *gpu, int *major, int *minor) {
    return *major = gpu->major, *minor = gpu->minor, 0;
}
int nvmlDeviceGetMemoryInfo(struct gpu *gpu, struct memory *memory) {
    *memory = (struct memory){gpu->total, gpu->free, gpu->total - gpu->free};
    return 0;
}
int nvmlDeviceGetComputeMode(struct gpu *gpu, int *mode) { return *mode = gpu->mode, 0; }
int nvmlDeviceGetMigMode(struct gpu *gpu, unsigned *current, unsigned *pending) {
    return *current = *pending = gpu->mig, 0;
}
