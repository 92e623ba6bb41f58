/* libcuda.so.1 without a driver, for tests: whether CUDA would start in this container.
 *
 * cuInit looks at what the real one needs: /dev/nvidiactl, /dev/nvidia-uvm with the major that the kernel gives it now,
 * and the nodes of cards, all allowed by the container's device cgroup. No driver is behind these nodes here, so a
 * permitted open fails with ENXIO, and a denied one with EPERM.
 *
 * The world (see the stand-in of NVML) says `uvm_major N`; without it any major will do. The file is
 * GPUSHARE_NVIDIA_WORLD, or /etc/gpushare-nvidia/world. GPUSHARE_NVIDIA_DEV is searched in place of /dev.
 *
 * Of a card in MIG mode it sees one instance: the first with the card's node and both of its own in nvidia-caps.
 *
 * `fault cuInit I CODE` has cuInit answer CODE, 0 too, where card I is visible; `hang cuInit I` has it hang there until the
 * line is gone. Both hold without any node of a driver, and in a container that has the card's. CUDA_VISIBLE_DEVICES leaves the cards whose UUIDs it lists.
 */
#include "cgroup_memory.h"
#include <pthread.h>
#include <sys/sysmacros.h>

enum { SUCCESS = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, NOT_INITIALIZED = 3, NO_DEVICE = 100, INVALID_DEVICE = 101,
       SYSTEM_NOT_READY = 802, UNKNOWN = 999 };
enum { MOST_CARDS = 64, MOST_INSTANCES = 7, CARD_MAJOR = 195, CONTROL_MINOR = 255 };

typedef struct { char bytes[16]; } CUuuid;

/* A MIG instance; gi and ci: IDs of its GPU instance and compute instance. */
struct instance {
    int gi, ci;
    unsigned long long mib;
    char uuid[96];
};

struct card {
    int index, minor, fabric_state, mig;
    int planted, answer, hangs; /* by lines about cuInit */
    unsigned long long free_mib, used_mib;
    char uuid[96];
    struct instance instance[MOST_INSTANCES];
};

static struct card world[MOST_CARDS], seen[MOST_CARDS];
static int worlds, seens, uvm_major, initialized;

static void read_instance(struct card *card, const char *row) {
    char field[64], value[512];
    int which;
    if (sscanf(row, "card %*d instance %d %63s %511s", &which, field, value) != 3) return;
    if (which < 0 || which >= MOST_INSTANCES) return;
    struct instance *instance = &card->instance[which];
    if (strcmp(field, "uuid") == 0) snprintf(instance->uuid, sizeof instance->uuid, "%.95s", value);
    if (strcmp(field, "gi") == 0) instance->gi = atoi(value);
    if (strcmp(field, "ci") == 0) instance->ci = atoi(value);
    if (strcmp(field, "memory_mib") == 0) instance->mib = strtoull(value, NULL, 0);
}

static void read_world(void) {
    FILE *file = fopen(path_of_world(), "re");
    char row[1024], field[64], value[512];
    int index;
    worlds = uvm_major = 0;
    if (file == NULL) return;
    while (fgets(row, sizeof row, file) != NULL) {
        if (sscanf(row, "uvm_major %d", &uvm_major) == 1) continue;
        if (sscanf(row, "hang cuInit %d", &index) == 1 && index >= 0 && index < worlds) world[index].hangs = 1;
        if (sscanf(row, "fault cuInit %d %63s", &index, field) == 2 && index >= 0 && index < worlds) {
            world[index].planted = 1;
            world[index].answer = atoi(field);
        }
        if (sscanf(row, "card %d %63s %511s", &index, field, value) != 3 || index < 0 || index >= MOST_CARDS) continue;
        if (index >= worlds) {
            memset(&world[worlds], 0, sizeof *world * (size_t)(index + 1 - worlds));
            worlds = index + 1;
            world[index].fabric_state = 3;
        }
        struct card *card = &world[index];
        card->index = index;
        if (strcmp(field, "uuid") == 0) snprintf(card->uuid, sizeof card->uuid, "%.95s", value);
        if (strcmp(field, "minor") == 0) card->minor = atoi(value);
        if (strcmp(field, "mig") == 0) card->mig = atoi(value);
        if (strcmp(field, "instance") == 0) read_instance(card, row);
        if (strcmp(field, "fabric_state") == 0) card->fabric_state = atoi(value);
        if (strcmp(field, "used_mib") == 0) card->used_mib = strtoull(value, NULL, 0);
        if (strcmp(field, "total_mib") == 0) card->free_mib = strtoull(value, NULL, 0);
    }
    fclose(file);
}

/* Whether the node exists with these numbers, and this container may open it. major 0: any. minor -1: any. */
static int may_open(const char *name, int major_wanted, int minor_wanted) {
    const char *folder = getenv("GPUSHARE_NVIDIA_DEV");
    char path[4200];
    struct stat found;
    snprintf(path, sizeof path, "%s/%s", folder != NULL && *folder ? folder : "/dev", name);
    if (stat(path, &found) != 0 || !S_ISCHR(found.st_mode)) return 0;
    if (major_wanted && (int)major(found.st_rdev) != major_wanted) return 0;
    if (minor_wanted >= 0 && (int)minor(found.st_rdev) != minor_wanted) return 0;
    int file = open(path, O_RDWR | O_CLOEXEC);
    if (file < 0) return errno == ENXIO || errno == ENODEV;
    close(file);
    return 1;
}

static int is_visible(const struct card *card) {
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    return visible == NULL || (card->uuid[0] != '\0' && strstr(visible, card->uuid) != NULL);
}

/* Whether this container has nodes of the driver, and not the card's. */
static int is_of_another(const struct card *card) {
    char name[64];
    snprintf(name, sizeof name, "nvidia%d", card->minor);
    return may_open("nvidiactl", CARD_MAJOR, CONTROL_MINOR) && !may_open(name, CARD_MAJOR, card->minor);
}

static int may_open_caps(int minor) {
    char name[64];
    snprintf(name, sizeof name, "nvidia-caps/nvidia-cap%d", minor);
    return may_open(name, 0, minor);
}

/* Put the card's instance that this container may use in place of the card. Whether there is one. */
static int is_instance(struct card *card) {
    for (int k = 0; k < MOST_INSTANCES; k++) {
        const struct instance *one = &card->instance[k];
        const char *visible = getenv("CUDA_VISIBLE_DEVICES");
        int access = 3 + 135 * card->minor + 9 * one->gi;
        if (one->uuid[0] == '\0' || (visible != NULL && strstr(visible, one->uuid) == NULL)) continue;
        if (!may_open_caps(access) || !may_open_caps(access + 1 + one->ci)) continue;
        card->free_mib = one->mib;
        snprintf(card->uuid, sizeof card->uuid, "%s", one->uuid);
        return 1;
    }
    return 0;
}

/* Do as the lines about cuInit say. Whether there are some; *answer: what it answers. */
static int is_planted(int *answer) {
    int planted = 0;
    for (int i = 0; i < worlds; i++) {
        if (!is_visible(&world[i]) || is_of_another(&world[i])) continue;
        while (i < worlds && world[i].hangs) {
            usleep(10000);
            read_world();
        }
        if (i >= worlds || !world[i].planted) continue;
        planted = 1;
        *answer = *answer != SUCCESS ? *answer : world[i].answer;
        seen[seens++] = world[i];
    }
    return planted;
}

int cuInit(unsigned int flags) {
    char name[64];
    int answer = SUCCESS;
    if (flags != 0) return INVALID_VALUE;
    read_world();
    seens = 0;
    if (is_planted(&answer)) {
        initialized = answer == SUCCESS;
        return answer;
    }
    if (!may_open("nvidiactl", CARD_MAJOR, CONTROL_MINOR)) return NO_DEVICE;
    int ready = 1;
    for (int i = 0; i < worlds; i++) {
        snprintf(name, sizeof name, "nvidia%d", world[i].minor);
        if (world[i].uuid[0] == '\0' || !may_open(name, CARD_MAJOR, world[i].minor)) continue;
        if (world[i].mig ? seens > 0 || !is_instance(&world[i]) : !is_visible(&world[i])) continue;
        ready = ready && world[i].fabric_state == 3;
        seen[seens++] = world[i];
    }
    if (seens == 0) return NO_DEVICE;
    if (!may_open("nvidia-uvm", uvm_major, -1)) return UNKNOWN;
    if (!ready) return SYSTEM_NOT_READY;
    initialized = 1;
    return SUCCESS;
}

int cuDriverGetVersion(int *version) {
    *version = 13000;
    return SUCCESS;
}

int cuDeviceGetCount(int *count) {
    *count = seens;
    return initialized ? SUCCESS : NOT_INITIALIZED;
}

int cuDeviceGet(int *device, int ordinal) {
    *device = ordinal;
    return !initialized ? NOT_INITIALIZED : ordinal >= 0 && ordinal < seens ? SUCCESS : INVALID_DEVICE;
}

/* The sixteen bytes behind `GPU-` or `MIG-`. */
int cuDeviceGetUuid_v2(CUuuid *uuid, int device) {
    if (!initialized) return NOT_INITIALIZED;
    if (device < 0 || device >= seens) return INVALID_DEVICE;
    const char *digits = seen[device].uuid + (strncmp(seen[device].uuid + 1, seen[device].uuid[0] == 'M' ? "IG-" : "PU-", 3) == 0 ? 4 : 0);
    memset(uuid, 0, sizeof *uuid);
    for (int at = 0; at < 16 && *digits; digits++) {
        unsigned int byte;
        if (*digits == '-') continue;
        if (sscanf(digits, "%2x", &byte) != 1) break;
        uuid->bytes[at++] = (char)byte;
        if (*++digits == '\0') break;
    }
    return SUCCESS;
}

int cuDeviceGetUuid(CUuuid *uuid, int device) { return cuDeviceGetUuid_v2(uuid, device); }

/* ---- memory: see cgroup_memory.h ---- */

enum { CONTEXT_MIB = 300, CARD_SHIFT = 56 };
static const uint64_t MIB = 1024 * 1024;
static int current = -1, use_file = -1;
static uint64_t own_bytes[MOST_CARDS];

/* A child of fork(2) has no CUDA: the memory is its parent's. */
static void begin_child(void) {
    if (use_file >= 0) close(use_file);
    initialized = seens = 0;
    current = use_file = -1;
    memset(own_bytes, 0, sizeof own_bytes);
}

__attribute__((constructor)) static void watch_forks(void) { pthread_atfork(NULL, NULL, begin_child); }

/* Open the file of this process's use, and hold it until the process ends. Called with the lock. */
static void open_use_file(void) {
    char path[4200];
    use_file = mkostemp(memory_file(path, "use-XXXXXX"), O_CLOEXEC);
    if (use_file < 0) return;
    fchmod(use_file, 0666);
    flock(use_file, LOCK_EX);
}

/* Let go of the lock. The lock of fcntl(2) on its own file, which tells others the PID, ends whenever this process
 * closes that file, and reading all use does. */
static void let_go(int lock) {
    struct flock held = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    if (use_file >= 0) fcntl(use_file, F_SETLK, &held);
    unlock_memory(lock);
}

/* Called with the lock. */
static void tell_use(void) {
    char text[CGROUP_PATH + MOST_CARDS * 128];
    struct cgroup own = own_cgroup();
    if (use_file < 0) open_use_file();
    if (use_file < 0) return;
    int length = snprintf(text, sizeof text, "%lu %s\n", own.id, own.path);
    for (int i = 0; i < seens; i++)
        if (own_bytes[i] > 0) length += snprintf(text + length, sizeof text - length, "%s %lu\n", seen[i].uuid, own_bytes[i]);
    if (ftruncate(use_file, 0) == 0 && pwrite(use_file, text, length, 0) != length) ftruncate(use_file, 0);
}

/* Used bytes of the card at this cgroup and below, or of all. Without a file, only this process's are known. */
static uint64_t all_used(int device, const struct cgroup *at) {
    return used_bytes(seen[device].uuid, at) + (use_file < 0 ? own_bytes[device] : 0);
}

/* Bytes of the card that this process may still take, and its size as the process sees it: that of a limit on its own
 * cgroup, but not of one above. Called with the lock. */
static uint64_t free_bytes(int device, uint64_t *total) {
    *total = seen[device].free_mib * MIB;
    read_limits();
    const struct cgroup own = own_cgroup();
    uint64_t used = seen[device].used_mib * MIB + all_used(device, NULL);
    uint64_t left = used < *total ? *total - used : 0;
    for (const struct limit *limit = limits; limit < limits + limit_count; limit++) {
        if (strcmp(limit->uuid, seen[device].uuid) != 0 || limit->hard == NO_LIMIT) continue;
        if (!is_at_or_below(own.path, limit->on.path)) continue;
        used = all_used(device, &limit->on);
        if (used >= limit->hard) left = 0;
        else if (limit->hard - used < left) left = limit->hard - used;
        if (strcmp(own.path, limit->on.path) == 0) *total = limit->hard;
    }
    return left;
}

/* Take memory of a card if there is as much. */
static int take(int device, uint64_t bytes) {
    uint64_t total;
    int lock = lock_memory();
    int fits = bytes <= free_bytes(device, &total);
    if (fits) {
        own_bytes[device] += bytes;
        tell_use();
    }
    let_go(lock);
    return fits ? SUCCESS : OUT_OF_MEMORY;
}

int cuDeviceTotalMem_v2(size_t *bytes, int device) {
    uint64_t total;
    if (!initialized) return NOT_INITIALIZED;
    if (device < 0 || device >= seens) return INVALID_DEVICE;
    int lock = lock_memory();
    free_bytes(device, &total);
    let_go(lock);
    *bytes = total;
    return SUCCESS;
}

int cuDevicePrimaryCtxRetain(void **context, int device) {
    if (!initialized) return NOT_INITIALIZED;
    if (device < 0 || device >= seens) return INVALID_DEVICE;
    if (own_bytes[device] == 0 && take(device, CONTEXT_MIB * MIB) != SUCCESS) return OUT_OF_MEMORY;
    current = device;
    *context = &seen[device];
    return SUCCESS;
}

int cuCtxSetCurrent(void *context) {
    if (context == NULL) return INVALID_VALUE;
    current = (int)((struct card *)context - seen);
    return SUCCESS;
}

int cuMemGetInfo_v2(size_t *left, size_t *total) {
    uint64_t size;
    if (current < 0) return NOT_INITIALIZED;
    int lock = lock_memory();
    *left = free_bytes(current, &size);
    let_go(lock);
    *total = size;
    return SUCCESS;
}

int cuMemAlloc_v2(unsigned long long *pointer, size_t bytes) {
    if (current < 0) return NOT_INITIALIZED;
    if (take(current, bytes) != SUCCESS) return OUT_OF_MEMORY;
    *pointer = ((unsigned long long)current << CARD_SHIFT) | bytes;
    return SUCCESS;
}

int cuMemFree_v2(unsigned long long pointer) {
    int lock = lock_memory();
    own_bytes[pointer >> CARD_SHIFT] -= pointer & ((1ULL << CARD_SHIFT) - 1);
    read_limits();
    tell_use();
    let_go(lock);
    return SUCCESS;
}
