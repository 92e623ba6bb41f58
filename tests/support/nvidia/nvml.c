/* libnvidia-ml.so.1 without a driver, for tests. Compiled against NVIDIA's own nvml.h, which checks every signature and
 * struct.
 *
 * The answers come from a text file, the world, that a test writes and may replace at any time (tests/support/nvidia):
 *
 *   driver 580.95.05                   version of the driver
 *   card I FIELD VALUE                 a fact of the card with index I; a later line replaces an earlier one
 *   card I process PID MIB [alive] [in K]   a program on it; alive: as long as that process lives; in: its instance
 *   card I link LINK PCI|switch        an active NVLink and its other end
 *   card I near J LEVEL                PCI topology level between two cards
 *   card I instance K FIELD VALUE      a fact of its MIG instance K, 0 to 6 (mig.c), while the card's `mig` is 1
 *   card I xid NUMBER SERIAL           an error; reported once to every event set, serials grow
 *   card I memory_limits 1             the driver can limit its memory by cgroup (cgroup_memory.h)
 *   fault FUNCTION I|* CODE            this function answers CODE for that card
 *   delay FUNCTION I|* SECONDS         it answers late
 *   initialise I SECONDS               the card's first handle in a process takes so long
 *   initialise_in_turn 1               cards are initialised one at a time
 *   hang FUNCTION I|*                  it answers when this line is gone
 *
 * FUNCTION may be `*`. A card without a line of its own does not exist; a handle to it then says that the card is lost.
 * What a program sets is appended to the file `WORLD.set`, in the same form. Limits of memory, and what the programs of
 * the stand-in of CUDA use, are in the folder `WORLD.memory`.
 */
#define NVML_NO_UNVERSIONED_FUNC_DEFS
#include "cgroup_memory.h"
#include <nvml.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#define MIB (1024ULL * 1024ULL)
#define MOST_LINES 8192
#define MOST_WORDS 8
#define MOST_CARDS 64
#define ANY "*"

static const double LOOK_EVERY_S = 0.01;

struct line {
    char *word[MOST_WORDS];
    int words;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct line lines[MOST_LINES];
static int line_count;
static char *text;
static struct stat known[2];
static int openings;

/* A handle: it names the card by UUID, so that it is no good for whatever has the index later. */
struct handle {
    char uuid[NVML_DEVICE_UUID_V2_BUFFER_SIZE];
    int opening;
};
struct events {
    struct handle *card[MOST_CARDS];
    int cards;
    long seen[MOST_CARDS];
};

/* ---- the world ---- */

static void sleep_s(double seconds) {
    struct timespec wanted = {(time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9)};
    nanosleep(&wanted, NULL);
}

static char *contents(const char *path, char *before) {
    FILE *file = fopen(path, "re");
    if (file == NULL) return before;
    size_t kept = before == NULL ? 0 : strlen(before), size = kept;
    char chunk[4096];
    for (size_t got; (got = fread(chunk, 1, sizeof chunk, file)) > 0; size += got) {
        before = realloc(before, size + got + 1);
        memcpy(before + size, chunk, got);
        before[size + got] = '\0';
    }
    fclose(file);
    return before;
}

static int is_same(const struct stat *one, const struct stat *other) {
    return one->st_ino == other->st_ino && one->st_size == other->st_size &&
           one->st_mtim.tv_sec == other->st_mtim.tv_sec && one->st_mtim.tv_nsec == other->st_mtim.tv_nsec;
}

/* Called with the lock held. */
static void look(void) {
    char set[4096];
    struct stat now[2];
    memset(now, 0, sizeof now);
    snprintf(set, sizeof set, "%s.set", path_of_world());
    stat(path_of_world(), &now[0]);
    stat(set, &now[1]);
    if (text != NULL && is_same(&now[0], &known[0]) && is_same(&now[1], &known[1])) return;
    memcpy(known, now, sizeof known);
    free(text);
    text = contents(set, contents(path_of_world(), strdup("")));
    line_count = 0;
    char *rest_of_text = NULL;
    for (char *row = strtok_r(text, "\n", &rest_of_text); row && line_count < MOST_LINES;
         row = strtok_r(NULL, "\n", &rest_of_text)) {
        struct line *line = &lines[line_count];
        line->words = 0;
        char *rest = NULL;
        for (char *word = strtok_r(row, " ", &rest); word && line->words < MOST_WORDS; word = strtok_r(NULL, " ", &rest))
            line->word[line->words++] = word;
        if (line->words > 1) line_count++;
    }
}

static int says(const struct line *line, int at, const char *word) {
    return line->words > at && strcmp(line->word[at], word) == 0;
}

static int is_card(const struct line *line, int index) {
    return says(line, 0, "card") && line->words > 3 && atoi(line->word[1]) == index;
}

/* The last value of the card's field; NULL where the world has none. */
static const char *fact(int index, const char *field) {
    for (int i = line_count - 1; i >= 0; i--)
        if (is_card(&lines[i], index) && says(&lines[i], 2, field)) return lines[i].word[3];
    return NULL;
}

static const char *fact_or(int index, const char *field, const char *otherwise) {
    const char *found = fact(index, field);
    return found != NULL ? found : otherwise;
}

static const char *of_system(const char *name, const char *otherwise) {
    for (int i = line_count - 1; i >= 0; i--)
        if (says(&lines[i], 0, name)) return lines[i].word[1];
    return otherwise;
}

static int card_count(void) {
    int count = 0;
    while (count < MOST_CARDS && fact(count, "uuid") != NULL) count++;
    return count;
}

static int index_of(const char *uuid) {
    for (int index = 0; index < card_count(); index++)
        if (strcmp(fact(index, "uuid"), uuid) == 0) return index;
    return -1;
}

/* The MIG instance that the handle of the present call means; -1 for a whole card. With the lock held. */
static int instance = -1;
static int parent_of(const char *uuid, int *which);
static int takes_instances(const char *function);
static const char *own(int index, int which, const char *field);

static void set_fact(int index, const char *field, const char *value) {
    char path[4096];
    snprintf(path, sizeof path, "%s.set", path_of_world());
    FILE *file = fopen(path, "ae");
    if (file == NULL) return;
    fprintf(file, "card %d %s %s\n", index, field, value);
    fclose(file);
}

/* ---- every call ---- */

static int concerns(const struct line *line, const char *kind, const char *function, int index) {
    return says(line, 0, kind) && line->words > 2 && (says(line, 1, ANY) || says(line, 1, function)) &&
           (says(line, 2, ANY) || (index >= 0 && atoi(line->word[2]) == index));
}

static const struct line *planted(const char *kind, const char *function, int index) {
    for (int i = 0; i < line_count; i++)
        if (concerns(&lines[i], kind, function, index)) return &lines[i];
    return NULL;
}

/* What was planted for this call. Called with the lock held; it is let go while the call waits. */
static nvmlReturn_t planned(const char *function, int index) {
    const struct line *found = planted("delay", function, index);
    if (found != NULL && found->words > 3) {
        double seconds = atof(found->word[3]);
        pthread_mutex_unlock(&lock);
        sleep_s(seconds);
        pthread_mutex_lock(&lock);
        look();
    }
    while (planted("hang", function, index) != NULL) {
        pthread_mutex_unlock(&lock);
        sleep_s(LOOK_EVERY_S);
        pthread_mutex_lock(&lock);
        look();
    }
    found = planted("fault", function, index);
    return found != NULL && found->words > 3 ? (nvmlReturn_t)atoi(found->word[3]) : NVML_SUCCESS;
}

/* Begin a call that concerns no card. */
static nvmlReturn_t begin(const char *function, int needs_opening) {
    pthread_mutex_lock(&lock);
    look();
    if (needs_opening && openings == 0) return NVML_ERROR_UNINITIALIZED;
    return planned(function, -1);
}

/* Begin a call on a card; *index: its index now. */
static nvmlReturn_t begin_on(const char *function, nvmlDevice_t device, int *index) {
    pthread_mutex_lock(&lock);
    look();
    const struct handle *handle = (const struct handle *)device;
    if (openings == 0) return NVML_ERROR_UNINITIALIZED;
    if (handle == NULL || handle->opening > openings) return NVML_ERROR_INVALID_ARGUMENT;
    int which = -1;
    *index = index_of(handle->uuid);
    if (*index < 0) *index = parent_of(handle->uuid, &which);
    if (*index < 0) return strncmp(handle->uuid, "MIG-", 4) ? NVML_ERROR_GPU_IS_LOST : NVML_ERROR_NOT_FOUND;
    if (which >= 0 && !takes_instances(function)) return NVML_ERROR_INVALID_ARGUMENT;
    nvmlReturn_t result = planned(function, *index);
    instance = which;
    return result;
}

static nvmlReturn_t end(nvmlReturn_t result) {
    pthread_mutex_unlock(&lock);
    return result;
}

/* A function of one card: `index` is the card's, and the block ends with the result. */
#define ON_CARD(function, ...)                                                                                         \
    nvmlReturn_t function(nvmlDevice_t device, __VA_ARGS__) {                                                          \
        int index = -1;                                                                                                \
        nvmlReturn_t began = begin_on(#function, device, &index);                                                      \
        if (began != NVML_SUCCESS) return end(began);
#define DONE(result)                                                                                                   \
        return end(result);                                                                                            \
    }

static nvmlReturn_t copied(const char *value, char *buffer, unsigned int length) {
    if (value == NULL) return NVML_ERROR_NOT_SUPPORTED;
    if (strlen(value) + 1 > length) return NVML_ERROR_INSUFFICIENT_SIZE;
    strcpy(buffer, value);
    for (char *c = buffer; *c; c++)
        if (*c == '_') *c = ' ';
    return NVML_SUCCESS;
}

static nvmlReturn_t number(int index, const char *field, unsigned int *value) {
    const char *found = fact(index, field);
    if (found == NULL) return NVML_ERROR_NOT_SUPPORTED;
    *value = (unsigned int)strtoul(found, NULL, 0);
    return NVML_SUCCESS;
}

static nvmlReturn_t handle_to(const char *uuid, nvmlDevice_t *device) {
    struct handle *made = calloc(1, sizeof *made);
    snprintf(made->uuid, sizeof made->uuid, "%s", uuid);
    made->opening = openings;
    *device = (nvmlDevice_t)made;
    return NVML_SUCCESS;
}

static nvmlReturn_t handle_of(int index, nvmlDevice_t *device) { return handle_to(fact(index, "uuid"), device); }

/* ---- the library itself ---- */

static nvmlReturn_t opened(const char *function) {
    nvmlReturn_t result = begin(function, 0);
    if (result == NVML_SUCCESS) openings++;
    return end(result);
}

nvmlReturn_t nvmlInit_v2(void) { return opened("nvmlInit_v2"); }
nvmlReturn_t nvmlInit(void) { return opened("nvmlInit_v2"); }
nvmlReturn_t nvmlInitWithFlags(unsigned int flags) { (void)flags; return opened("nvmlInit_v2"); }

nvmlReturn_t nvmlShutdown(void) {
    nvmlReturn_t result = begin("nvmlShutdown", 1);
    if (result == NVML_SUCCESS) openings--;
    return end(result);
}

const char *nvmlErrorString(nvmlReturn_t result) {
    switch (result) {
    case NVML_SUCCESS: return "Success";
    case NVML_ERROR_NOT_SUPPORTED: return "Not Supported";
    case NVML_ERROR_NO_PERMISSION: return "Insufficient Permissions";
    case NVML_ERROR_NOT_FOUND: return "Not Found";
    case NVML_ERROR_TIMEOUT: return "Timeout";
    case NVML_ERROR_GPU_IS_LOST: return "GPU is lost";
    case NVML_ERROR_FUNCTION_NOT_FOUND: return "Function Not Found";
    case NVML_ERROR_LIB_RM_VERSION_MISMATCH: return "Driver/library version mismatch";
    case NVML_ERROR_DRIVER_NOT_LOADED: return "Driver Not Loaded";
    default: return "Unknown Error";
    }
}

nvmlReturn_t nvmlSystemGetDriverVersion(char *version, unsigned int length) {
    nvmlReturn_t result = begin(__func__, 1);
    return end(result != NVML_SUCCESS ? result : copied(of_system("driver", "580.95.05"), version, length));
}

nvmlReturn_t nvmlSystemGetNVMLVersion(char *version, unsigned int length) {
    nvmlReturn_t result = begin(__func__, 1);
    return end(result != NVML_SUCCESS ? result : copied(of_system("nvml", "13.580.95.05"), version, length));
}

nvmlReturn_t nvmlSystemGetCudaDriverVersion(int *version) {
    nvmlReturn_t result = begin(__func__, 1);
    *version = atoi(of_system("cuda", "13000"));
    return end(result);
}

nvmlReturn_t nvmlSystemGetCudaDriverVersion_v2(int *version) { return nvmlSystemGetCudaDriverVersion(version); }

nvmlReturn_t nvmlDeviceGetCount_v2(unsigned int *count) {
    nvmlReturn_t result = begin(__func__, 1);
    *count = (unsigned int)card_count();
    return end(result);
}

/* Called with the lock held; it is let go while the card is initialised. */
static void initialise(int index) {
    static pthread_mutex_t turn = PTHREAD_MUTEX_INITIALIZER;
    static int done[MOST_CARDS];
    double seconds = 0;
    for (int i = 0; i < line_count; i++)
        if (says(&lines[i], 0, "initialise") && lines[i].words > 2 && atoi(lines[i].word[1]) == index)
            seconds = atof(lines[i].word[2]);
    int in_turn = atoi(of_system("initialise_in_turn", "0"));
    if (seconds <= 0 || done[index]) return;
    pthread_mutex_unlock(&lock);
    if (in_turn) pthread_mutex_lock(&turn);
    sleep_s(seconds);
    if (in_turn) pthread_mutex_unlock(&turn);
    pthread_mutex_lock(&lock);
    done[index] = 1;
    look();
}

static nvmlReturn_t found(const char *function, int index, nvmlDevice_t *device, nvmlReturn_t missing) {
    if (index < 0 || index >= card_count()) return missing;
    initialise(index);
    nvmlReturn_t result = planned(function, index);
    if (result == NVML_SUCCESS && index >= card_count()) result = NVML_ERROR_GPU_IS_LOST;
    return result != NVML_SUCCESS ? result : handle_of(index, device);
}

nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned int index, nvmlDevice_t *device) {
    nvmlReturn_t result = begin(__func__, 1);
    return end(result != NVML_SUCCESS ? result : found(__func__, (int)index, device, NVML_ERROR_INVALID_ARGUMENT));
}

nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *device) {
    nvmlReturn_t result = begin(__func__, 1);
    int which = -1;
    if (result == NVML_SUCCESS && parent_of(uuid, &which) >= 0) return end(handle_to(uuid, device));
    return end(result != NVML_SUCCESS ? result : found(__func__, index_of(uuid), device, NVML_ERROR_NOT_FOUND));
}

static int parsed_pci(const char *address, unsigned int at[3]) {
    return address != NULL && sscanf(address, "%x:%x:%x", &at[0], &at[1], &at[2]) == 3;
}

nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char *pci, nvmlDevice_t *device) {
    nvmlReturn_t result = begin(__func__, 1);
    int index = -1;
    unsigned int wanted[3], has[3];
    if (parsed_pci(pci, wanted))
        for (int i = 0; i < card_count(); i++)
            if (parsed_pci(fact(i, "pci"), has) && memcmp(wanted, has, sizeof has) == 0) index = i;
    return end(result != NVML_SUCCESS ? result : found(__func__, index, device, NVML_ERROR_NOT_FOUND));
}

/* ---- what a card is ---- */

ON_CARD(nvmlDeviceGetIndex, unsigned int *value)
    *value = (unsigned int)(instance < 0 ? index : instance);
DONE(NVML_SUCCESS)

ON_CARD(nvmlDeviceGetUUID, char *uuid, unsigned int length)
DONE(copied(instance < 0 ? fact(index, "uuid") : own(index, instance, "uuid"), uuid, length))

ON_CARD(nvmlDeviceGetName, char *name, unsigned int length)
    char of_instance[256];
    if (instance >= 0)
        snprintf(of_instance, sizeof of_instance, "%s MIG %s", fact(index, "name"), own(index, instance, "profile"));
DONE(copied(instance < 0 ? fact(index, "name") : of_instance, name, length))

ON_CARD(nvmlDeviceGetMinorNumber, unsigned int *minor) DONE(number(index, "minor", minor))
ON_CARD(nvmlDeviceGetNumaNodeId, unsigned int *node) DONE(number(index, "own_numa", node))
ON_CARD(nvmlDeviceGetArchitecture, nvmlDeviceArchitecture_t *value) DONE(number(index, "architecture", value))

ON_CARD(nvmlDeviceGetBrand, nvmlBrandType_t *brand)
    *brand = NVML_BRAND_NVIDIA;
DONE(NVML_SUCCESS)

ON_CARD(nvmlDeviceGetCudaComputeCapability, int *major, int *minor)
    *major = 9;
    *minor = 0;
DONE(NVML_SUCCESS)

static nvmlReturn_t filled_pci(const char *address, nvmlPciInfo_t *pci) {
    unsigned int at[3];
    if (!parsed_pci(address, at)) return NVML_ERROR_NOT_SUPPORTED;
    memset(pci, 0, sizeof *pci);
    pci->domain = at[0];
    pci->bus = at[1];
    pci->device = at[2];
    pci->pciDeviceId = 0x233010de;
    snprintf(pci->busId, sizeof pci->busId, NVML_DEVICE_PCI_BUS_ID_FMT, at[0], at[1], at[2]);
    snprintf(pci->busIdLegacy, sizeof pci->busIdLegacy, NVML_DEVICE_PCI_BUS_ID_LEGACY_FMT, at[0], at[1], at[2]);
    return NVML_SUCCESS;
}

ON_CARD(nvmlDeviceGetPciInfo_v3, nvmlPciInfo_t *pci) DONE(filled_pci(fact(index, "pci"), pci))

ON_CARD(nvmlDeviceGetMemoryAffinity, unsigned int words, unsigned long *mask, nvmlAffinityScope_t scope)
    (void)scope;
    const char *numa = fact(index, "numa");
    memset(mask, 0, words * sizeof *mask);
    if (numa != NULL) mask[0] = 1UL << atoi(numa);
DONE(numa != NULL ? NVML_SUCCESS : NVML_ERROR_NOT_SUPPORTED)

static uint64_t used_by_programs(int index) {
    int lock = lock_memory();
    uint64_t bytes = used_bytes(fact(index, "uuid"), NULL);
    unlock_memory(lock);
    return bytes;
}

/* A card in MIG mode denies its memory: only its instances have any. They are not described here. */
static void memory_of_instance(int index, unsigned long long mib[4]);

static nvmlReturn_t memory(int index, unsigned long long mib[4]) {
    if (instance >= 0) {
        memory_of_instance(index, mib);
        return NVML_SUCCESS;
    }
    if (fact(index, "total_mib") == NULL) return NVML_ERROR_NOT_SUPPORTED;
    if (atoi(fact_or(index, "mig", "0")) && !atoi(fact_or(index, "monitor", "0"))) return NVML_ERROR_NO_PERMISSION;
    mib[0] = strtoull(fact(index, "total_mib"), NULL, 0);
    mib[1] = strtoull(fact_or(index, "reserved_mib", "0"), NULL, 0);
    mib[2] = strtoull(fact_or(index, "used_mib", "0"), NULL, 0) + used_by_programs(index) / MIB;
    mib[3] = mib[0] - mib[1] - mib[2];
    return NVML_SUCCESS;
}

ON_CARD(nvmlDeviceGetMemoryInfo, nvmlMemory_t *answer)
    unsigned long long mib[4];
    nvmlReturn_t result = memory(index, mib);
    if (result == NVML_SUCCESS) *answer = (nvmlMemory_t){mib[0] * MIB, mib[3] * MIB, (mib[1] + mib[2]) * MIB};
DONE(result)

ON_CARD(nvmlDeviceGetMemoryInfo_v2, nvmlMemory_v2_t *answer)
    unsigned long long mib[4];
    nvmlReturn_t result = answer->version == nvmlMemory_v2 ? memory(index, mib) : NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    if (result == NVML_SUCCESS)
        *answer = (nvmlMemory_v2_t){nvmlMemory_v2, mib[0] * MIB, mib[1] * MIB, mib[3] * MIB, mib[2] * MIB};
DONE(result)

/* ---- how it is ---- */

ON_CARD(nvmlDeviceGetPersistenceMode, nvmlEnableState_t *mode)
    unsigned int value = 0;
    nvmlReturn_t result = number(index, "persistence", &value);
    *mode = (nvmlEnableState_t)value;
DONE(result)

ON_CARD(nvmlDeviceGetComputeMode, nvmlComputeMode_t *mode)
    *mode = (nvmlComputeMode_t)atoi(fact_or(index, "compute_mode", "0"));
DONE(NVML_SUCCESS)

ON_CARD(nvmlDeviceSetComputeMode, nvmlComputeMode_t mode)
    char value[16];
    snprintf(value, sizeof value, "%d", (int)mode);
    set_fact(index, "compute_mode", value);
DONE(NVML_SUCCESS)

ON_CARD(nvmlDeviceGetUtilizationRates, nvmlUtilization_t *rates)
    nvmlReturn_t result = number(index, "utilization", &rates->gpu);
    rates->memory = 0;
DONE(result)

ON_CARD(nvmlDeviceGetPowerUsage, unsigned int *milliwatts) DONE(number(index, "power_mw", milliwatts))

ON_CARD(nvmlDeviceGetTotalEnergyConsumption, unsigned long long *millijoules)
    const char *value = fact(index, "energy_mj");
    if (value != NULL) *millijoules = strtoull(value, NULL, 0);
DONE(value != NULL ? NVML_SUCCESS : NVML_ERROR_NOT_SUPPORTED)

ON_CARD(nvmlDeviceGetTemperature, nvmlTemperatureSensors_t sensor, unsigned int *celsius)
    (void)sensor;
DONE(number(index, "celsius", celsius))

ON_CARD(nvmlDeviceGetTemperatureV, nvmlTemperature_t *answer)
    unsigned int celsius = 0;
    nvmlReturn_t result = answer->version == nvmlTemperature_v1 ? number(index, "celsius", &celsius)
                                                                : NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    answer->temperature = (int)celsius;
DONE(result)

ON_CARD(nvmlDeviceGetTotalEccErrors, nvmlMemoryErrorType_t type, nvmlEccCounterType_t counter, unsigned long long *count)
    (void)type; (void)counter;
    const char *value = fact(index, "uncorrected_ecc");
    if (value != NULL) *count = strtoull(value, NULL, 0);
DONE(value != NULL ? NVML_SUCCESS : NVML_ERROR_NOT_SUPPORTED)

ON_CARD(nvmlDeviceGetRemappedRows, unsigned int *corrected, unsigned int *uncorrected, unsigned int *pending,
        unsigned int *failed)
    *corrected = *uncorrected = *failed = 0;
DONE(number(index, "remap_pending", pending))

ON_CARD(nvmlDeviceGetRetiredPagesPendingStatus, nvmlEnableState_t *pending)
    unsigned int value = 0;
    nvmlReturn_t result = number(index, "retired_pending", &value);
    *pending = (nvmlEnableState_t)value;
DONE(result)

ON_CARD(nvmlDeviceGetFieldValues, int count, nvmlFieldValue_t *values)
    for (int i = 0; i < count; i++) {
        const char *value = values[i].fieldId == NVML_FI_DEV_GET_GPU_RECOVERY_ACTION ? fact(index, "recovery") : NULL;
        values[i].valueType = NVML_VALUE_TYPE_UNSIGNED_INT;
        values[i].nvmlReturn = value != NULL ? NVML_SUCCESS : NVML_ERROR_NOT_SUPPORTED;
        values[i].value.uiVal = value != NULL ? (unsigned int)atoi(value) : 0;
    }
DONE(NVML_SUCCESS)

ON_CARD(nvmlDeviceGetGpuFabricInfoV, nvmlGpuFabricInfoV_t *info)
    const char *state = fact(index, "fabric_state");
    if (state != NULL) {
        info->state = (nvmlGpuFabricState_t)atoi(state);
        info->status = (nvmlReturn_t)atoi(fact_or(index, "fabric_status", "0"));
    }
DONE(state != NULL ? NVML_SUCCESS : NVML_ERROR_NOT_SUPPORTED)

/* Whether a later line says something else of this program, or it has ended. */
static int is_over(int at) {
    for (int i = at + 1; i < line_count; i++)
        if (is_card(&lines[i], atoi(lines[at].word[1])) && says(&lines[i], 2, "process") &&
            lines[i].words > 4 && says(&lines[i], 3, lines[at].word[3]))
            return 1;
    return !strcmp(lines[at].word[4], "0") || (says(&lines[at], 5, "alive") && kill(atoi(lines[at].word[3]), 0) != 0);
}

/* Whether the line of a program concerns the instance of the present call: it ends with `in K`. */
static int is_of_this(const struct line *line) {
    const char *in = says(line, line->words - 2, "in") ? line->word[line->words - 1] : "-1";
    return instance == atoi(in);
}

/* Programs of a card. room: for that many. */
struct listing {
    const char *uuid;
    unsigned int room, has;
    nvmlProcessInfo_t *infos;
};

static void list(struct listing *to, int pid, unsigned long long bytes) {
    if (to->has < to->room && to->infos != NULL)
        to->infos[to->has] = (nvmlProcessInfo_t){.pid = (unsigned int)pid,
                                                 .usedGpuMemory = bytes,
                                                 .gpuInstanceId = 0xFFFFFFFF,
                                                 .computeInstanceId = 0xFFFFFFFF};
    to->has++;
}

static void list_use(const struct cgroup *of, const char *uuid, uint64_t bytes, int pid, void *to) {
    struct listing *listing = to;
    (void)of;
    if (strcmp(uuid, listing->uuid) == 0 && pid > 0) list(listing, pid, bytes);
}

static nvmlReturn_t processes(int index, unsigned int *count, nvmlProcessInfo_t *infos) {
    const char *uuid = instance >= 0 ? own(index, instance, "uuid") : fact(index, "uuid");
    struct listing listing = {uuid, *count, 0, infos};
    for (int i = 0; i < line_count; i++) {
        if (!is_card(&lines[i], index) || !says(&lines[i], 2, "process") || lines[i].words < 5) continue;
        if (is_over(i) || !is_of_this(&lines[i])) continue;
        list(&listing, atoi(lines[i].word[3]), strtoull(lines[i].word[4], NULL, 0) * MIB);
    }
    int lock = lock_memory();
    each_use(list_use, &listing);
    unlock_memory(lock);
    *count = listing.has;
    return listing.has <= listing.room ? NVML_SUCCESS : NVML_ERROR_INSUFFICIENT_SIZE;
}

ON_CARD(nvmlDeviceGetComputeRunningProcesses_v2, unsigned int *count, nvmlProcessInfo_v2_t *infos)
DONE(processes(index, count, infos))

ON_CARD(nvmlDeviceGetGraphicsRunningProcesses_v2, unsigned int *count, nvmlProcessInfo_v2_t *infos)
    (void)infos;
    *count = 0;
DONE(NVML_SUCCESS)

ON_CARD(nvmlDeviceGetComputeRunningProcesses_v3, unsigned int *count, nvmlProcessInfo_t *infos)
DONE(processes(index, count, infos))

ON_CARD(nvmlDeviceGetGraphicsRunningProcesses_v3, unsigned int *count, nvmlProcessInfo_t *infos)
    (void)infos;
    *count = 0;
DONE(NVML_SUCCESS)

/* ---- how cards are linked ---- */

static const char *link_end(int index, unsigned int link) {
    for (int i = 0; i < line_count; i++)
        if (is_card(&lines[i], index) && says(&lines[i], 2, "link") && lines[i].words > 4 &&
            (unsigned int)atoi(lines[i].word[3]) == link)
            return lines[i].word[4];
    return NULL;
}

ON_CARD(nvmlDeviceGetNvLinkState, unsigned int link, nvmlEnableState_t *active)
    *active = link_end(index, link) != NULL ? NVML_FEATURE_ENABLED : NVML_FEATURE_DISABLED;
DONE(link < (unsigned int)atoi(fact_or(index, "links", "0")) ? NVML_SUCCESS : NVML_ERROR_INVALID_ARGUMENT)

ON_CARD(nvmlDeviceGetNvLinkRemoteDeviceType, unsigned int link, nvmlIntNvLinkDeviceType_t *type)
    const char *to = link_end(index, link);
    *type = to != NULL && strcmp(to, "switch") == 0 ? NVML_NVLINK_DEVICE_TYPE_SWITCH : NVML_NVLINK_DEVICE_TYPE_GPU;
DONE(to != NULL ? NVML_SUCCESS : NVML_ERROR_NOT_SUPPORTED)

ON_CARD(nvmlDeviceGetNvLinkRemotePciInfo_v2, unsigned int link, nvmlPciInfo_t *pci)
DONE(filled_pci(link_end(index, link), pci))

nvmlReturn_t nvmlDeviceGetTopologyCommonAncestor(nvmlDevice_t one, nvmlDevice_t other, nvmlGpuTopologyLevel_t *level) {
    int index = -1;
    nvmlReturn_t result = begin_on(__func__, one, &index);
    if (result != NVML_SUCCESS) return end(result);
    int to = other == NULL ? -1 : index_of(((const struct handle *)other)->uuid);
    if (to < 0) return end(NVML_ERROR_INVALID_ARGUMENT);
    *level = NVML_TOPOLOGY_SYSTEM;
    for (int i = 0; i < line_count; i++)
        if (is_card(&lines[i], index) && says(&lines[i], 2, "near") && lines[i].words > 4 && atoi(lines[i].word[3]) == to)
            *level = (nvmlGpuTopologyLevel_t)atoi(lines[i].word[4]);
    return end(NVML_SUCCESS);
}

/* ---- MIG ---- */

ON_CARD(nvmlDeviceGetMigMode, unsigned int *current, unsigned int *pending)
    nvmlReturn_t result = number(index, "mig", current);
    *pending = result == NVML_SUCCESS ? *current : 0;
DONE(result)

#include "mig.c"

/* ---- errors that cards report ---- */

nvmlReturn_t nvmlEventSetCreate(nvmlEventSet_t *set) {
    nvmlReturn_t result = begin(__func__, 1);
    if (result == NVML_SUCCESS) *set = (nvmlEventSet_t)calloc(1, sizeof(struct events));
    return end(result);
}

nvmlReturn_t nvmlEventSetFree(nvmlEventSet_t set) {
    free(set);
    return NVML_SUCCESS;
}

static long last_serial(int index) {
    long last = 0;
    for (int i = 0; i < line_count; i++)
        if (is_card(&lines[i], index) && says(&lines[i], 2, "xid") && lines[i].words > 4 && atol(lines[i].word[4]) > last)
            last = atol(lines[i].word[4]);
    return last;
}

ON_CARD(nvmlDeviceRegisterEvents, unsigned long long types, nvmlEventSet_t set)
    struct events *events = (struct events *)set;
    if (!(types & nvmlEventTypeXidCriticalError)) return end(NVML_ERROR_NOT_SUPPORTED);
    if (events->cards == MOST_CARDS) return end(NVML_ERROR_INSUFFICIENT_SIZE);
    events->card[events->cards] = (struct handle *)device;
    events->seen[events->cards++] = last_serial(index);
DONE(NVML_SUCCESS)

/* The next error of a card of the set; NVML_ERROR_TIMEOUT for none yet. Called with the lock held. */
static nvmlReturn_t next_event(struct events *events, nvmlEventData_t *data) {
    for (int at = 0; at < events->cards; at++) {
        int index = index_of(events->card[at]->uuid);
        if (index < 0) return NVML_ERROR_GPU_IS_LOST;
        for (int i = 0; i < line_count; i++) {
            if (!is_card(&lines[i], index) || !says(&lines[i], 2, "xid") || lines[i].words < 5) continue;
            if (atol(lines[i].word[4]) <= events->seen[at]) continue;
            events->seen[at] = atol(lines[i].word[4]);
            *data = (nvmlEventData_t){.device = (nvmlDevice_t)events->card[at],
                                      .eventType = nvmlEventTypeXidCriticalError,
                                      .eventData = strtoull(lines[i].word[3], NULL, 0),
                                      .gpuInstanceId = 0xFFFFFFFF,
                                      .computeInstanceId = 0xFFFFFFFF};
            return NVML_SUCCESS;
        }
    }
    return NVML_ERROR_TIMEOUT;
}

nvmlReturn_t nvmlEventSetWait_v2(nvmlEventSet_t set, nvmlEventData_t *data, unsigned int timeout_ms) {
    struct events *events = (struct events *)set;
    int index = events->cards ? index_of(events->card[0]->uuid) : -1;
    double left_s = timeout_ms / 1000.0;
    for (;;) {
        nvmlReturn_t result = begin("nvmlEventSetWait_v2", 1);
        if (result == NVML_SUCCESS && index >= 0) result = planned("nvmlEventSetWait_v2", index);
        if (result == NVML_SUCCESS) result = next_event(events, data);
        end(result);
        if (result != NVML_ERROR_TIMEOUT || left_s <= 0) return result;
        sleep_s(LOOK_EVERY_S);
        left_s -= LOOK_EVERY_S;
    }
}

/* ---- limits of memory by cgroup (drivers from 615 on) ---- */

static struct reservation reserved[MOST_LIMITS];
static int reserved_count;

/* Read the cgroup at this directory, and where its tree is mounted. Whether there is one. */
static int opened_cgroup(const char *directory, struct cgroup *found, char mounted[CGROUP_PATH]) {
    const char *stands_for = getenv("GPUSHARE_NVIDIA_CGROUPS");
    struct stat here, above;
    char parent[CGROUP_PATH + 4];
    if (directory == NULL || strlen(directory) >= CGROUP_PATH || stat(directory, &here) != 0) return 0;
    strcpy(mounted, directory);
    for (size_t end = strlen(mounted); end > 1 && mounted[end - 1] == '/';) mounted[--end] = '\0';
    size_t whole = strlen(mounted);
    while (stands_for != NULL ? strcmp(mounted, stands_for) != 0 : strcmp(mounted, "/") != 0) {
        snprintf(parent, sizeof parent, "%s/..", mounted);
        if (stat(parent, &above) != 0 || (stands_for == NULL && above.st_dev != here.st_dev)) break;
        char *last = strrchr(mounted, '/');
        if (last == NULL || last == mounted) break;
        *last = '\0';
    }
    size_t before = strlen(mounted);
    snprintf(found->path, sizeof found->path, "%.*s", (int)(whole - before), before < whole ? directory + before : "");
    if (found->path[0] == '\0') strcpy(found->path, "/");
    found->id = identity(directory);
    return found->id != 0;
}

static uint64_t identity_below(const char *mounted, const char *path) {
    char directory[2 * CGROUP_PATH];
    snprintf(directory, sizeof directory, "%s%s", mounted, path);
    return identity(directory);
}

static void read_reserved(void) {
    char path[4200];
    FILE *file = fopen(memory_file(path, "reserved"), "re");
    struct reservation one;
    reserved_count = 0;
    if (file == NULL) return;
    while (reserved_count < MOST_LIMITS && fscanf(file, "%95s %1023s %lu", one.uuid, one.path, &one.bytes) == 3)
        reserved[reserved_count++] = one;
    fclose(file);
}

/* Forget the limits and reservations of cgroups that have gone. What they reserved above remains. */
static void forget_gone(const char *mounted) {
    int kept = 0;
    for (int i = 0; i < limit_count; i++)
        if (identity_below(mounted, limits[i].on.path) == limits[i].on.id) limits[kept++] = limits[i];
    limit_count = kept;
    kept = 0;
    for (int i = 0; i < reserved_count; i++)
        if (identity_below(mounted, reserved[i].path) != 0) reserved[kept++] = reserved[i];
    reserved_count = kept;
}

static FILE *replacement(const char *name, char path[4200], char temporary[4200]) {
    snprintf(temporary, 4200, "%.4190s.new", memory_file(path, name));
    return fopen(temporary, "we");
}

static int write_limits(void) {
    char path[4200], temporary[4200];
    FILE *file = replacement("limits", path, temporary);
    if (file == NULL) return 0;
    for (const struct limit *one = limits; one < limits + limit_count; one++)
        fprintf(file, "%s %lu %s %lu %lu\n", one->uuid, one->on.id, one->on.path, one->soft, one->hard);
    if (fclose(file) != 0 || rename(temporary, path) != 0) return 0;
    file = replacement("reserved", path, temporary);
    if (file == NULL) return 0;
    for (const struct reservation *one = reserved; one < reserved + reserved_count; one++)
        fprintf(file, "%s %s %lu\n", one->uuid, one->path, one->bytes);
    return fclose(file) == 0 && rename(temporary, path) == 0;
}

static struct limit *limit_on(const char *uuid, const struct cgroup *on) {
    for (int i = 0; i < limit_count; i++)
        if (limits[i].on.id == on->id && strcmp(limits[i].uuid, uuid) == 0) return &limits[i];
    return NULL;
}

/* Add to what every cgroup above this one has reserved; the root reserves nothing. */
static void reserve_above(const char *uuid, const char *path, uint64_t more) {
    char above[CGROUP_PATH];
    strcpy(above, path);
    for (char *last; (last = strrchr(above, '/')) != NULL && last != above;) {
        *last = '\0';
        int at = 0;
        while (at < reserved_count && (strcmp(reserved[at].path, above) || strcmp(reserved[at].uuid, uuid))) at++;
        if (at == MOST_LIMITS) return;
        if (at == reserved_count) {
            memset(&reserved[at], 0, sizeof reserved[at]);
            strcpy(reserved[at].path, above);
            snprintf(reserved[at].uuid, sizeof reserved[at].uuid, "%s", uuid);
            reserved_count++;
        }
        reserved[at].bytes += more;
    }
}

static nvmlReturn_t set_limits(const char *uuid, const nvmlSetMemoryLimits_v1_t *wanted) {
    char mounted[CGROUP_PATH];
    struct cgroup on;
    if (!opened_cgroup(wanted->nameSpace, &on, mounted)) return NVML_ERROR_OPERATING_SYSTEM;
    int lock = lock_memory();
    read_limits();
    read_reserved();
    forget_gone(mounted);
    struct limit *set = limit_on(uuid, &on);
    if (set == NULL && limit_count < MOST_LIMITS) {
        set = &limits[limit_count++];
        memset(set, 0, sizeof *set);
        snprintf(set->uuid, sizeof set->uuid, "%s", uuid);
        set->on = on;
    }
    if (set != NULL) {
        if (wanted->softLimit != set->soft) reserve_above(uuid, on.path, wanted->softLimit - set->soft);
        set->soft = wanted->softLimit;
        set->hard = wanted->hardLimit;
        if (set->soft == 0 && set->hard == NO_LIMIT) *set = limits[--limit_count];
    }
    int written = set != NULL && write_limits();
    unlock_memory(lock);
    return written ? NVML_SUCCESS : NVML_ERROR_UNKNOWN;
}

static int has_limits(int index) {
    return atoi(fact_or(index, "memory_limits", "0")) && !atoi(fact_or(index, "mig", "0"));
}

ON_CARD(nvmlDeviceSetMemoryLimits_v1, nvmlSetMemoryLimits_v1_t *limits)
    if (!has_limits(index)) return end(NVML_ERROR_NOT_SUPPORTED);
    if (limits == NULL) return end(NVML_ERROR_INVALID_ARGUMENT);
    unsigned long long total = strtoull(fact_or(index, "total_mib", "0"), NULL, 0) * MIB;
    int fits = limits->softLimit <= total && (limits->hardLimit == NO_LIMIT || limits->hardLimit <= total);
    if (!fits || limits->softLimit > limits->hardLimit) return end(NVML_ERROR_INVALID_ARGUMENT);
DONE(set_limits(fact(index, "uuid"), limits))

ON_CARD(nvmlDeviceGetMemoryLimits_v1, nvmlGetMemoryLimits_v1_t *limits)
    char mounted[CGROUP_PATH];
    struct cgroup on;
    if (!has_limits(index)) return end(NVML_ERROR_NOT_SUPPORTED);
    if (limits == NULL) return end(NVML_ERROR_INVALID_ARGUMENT);
    if (!opened_cgroup(limits->nameSpace, &on, mounted)) return end(NVML_ERROR_OPERATING_SYSTEM);
    int lock = lock_memory();
    read_limits();
    const struct limit *set = limit_on(fact(index, "uuid"), &on);
    if (set != NULL) {
        limits->softLimit = set->soft;
        limits->hardLimit = set->hard;
        limits->currentUsed = used_bytes(set->uuid, &set->on);
    }
    unlock_memory(lock);
DONE(set != NULL ? NVML_SUCCESS : NVML_ERROR_NOT_FOUND)
