/* MIG instances: a part of nvml.c, which includes it. An instance K of a card has the facts uuid, gi, ci, profile (such
 * as 2g.20gb), memory_mib and used_mib. It exists while it has a uuid and the card's `mig` is 1. The card's own memory is
 * denied then, unless its fact `monitor` is 1.
 */
enum { MOST_INSTANCES = 7 };

static const char *own(int index, int which, const char *field) {
    for (int i = line_count - 1; i >= 0; i--)
        if (is_card(&lines[i], index) && says(&lines[i], 2, "instance") && lines[i].words > 5 &&
            atoi(lines[i].word[3]) == which && says(&lines[i], 4, field))
            return lines[i].word[5];
    return NULL;
}

static unsigned int own_number(int index, int which, const char *field) {
    const char *found = own(index, which, field);
    return found == NULL ? 0 : (unsigned int)strtoul(found, NULL, 0);
}

static int exists(int index, int which) {
    return atoi(fact_or(index, "mig", "0")) && own(index, which, "uuid") != NULL;
}

/* The index of the card that has this instance; -1 if none has. */
static int parent_of(const char *uuid, int *which) {
    for (int index = 0; index < card_count(); index++)
        for (int k = 0; k < MOST_INSTANCES; k++)
            if (exists(index, k) && strcmp(own(index, k, "uuid"), uuid) == 0) {
                *which = k;
                return index;
            }
    return -1;
}

/* NVML rejects handles of instances in every other function. */
static int takes_instances(const char *function) {
    static const char *const taking[] = {
        "nvmlDeviceGetIndex", "nvmlDeviceGetUUID", "nvmlDeviceGetName", "nvmlDeviceGetMemoryInfo",
        "nvmlDeviceGetMemoryInfo_v2", "nvmlDeviceGetAttributes_v2", "nvmlDeviceGetGpuInstanceId",
        "nvmlDeviceGetComputeInstanceId", "nvmlDeviceIsMigDeviceHandle", "nvmlDeviceGetDeviceHandleFromMigDeviceHandle",
        "nvmlDeviceGetComputeRunningProcesses_v2", "nvmlDeviceGetComputeRunningProcesses_v3",
        "nvmlDeviceGetGraphicsRunningProcesses_v2", "nvmlDeviceGetGraphicsRunningProcesses_v3"};
    for (size_t i = 0; i < sizeof taking / sizeof *taking; i++)
        if (strcmp(function, taking[i]) == 0) return 1;
    return 0;
}

static void memory_of_instance(int index, unsigned long long mib[4]) {
    mib[0] = own_number(index, instance, "memory_mib");
    mib[1] = 0;
    mib[2] = own_number(index, instance, "used_mib");
    mib[3] = mib[0] - mib[2];
}

ON_CARD(nvmlDeviceGetMaxMigDeviceCount, unsigned int *count)
    *count = atoi(fact_or(index, "mig", "0")) ? MOST_INSTANCES : 0;
DONE(NVML_SUCCESS)

ON_CARD(nvmlDeviceIsMigDeviceHandle, unsigned int *is_mig)
    *is_mig = instance >= 0;
DONE(NVML_SUCCESS)

ON_CARD(nvmlDeviceGetMigDeviceHandleByIndex, unsigned int which, nvmlDevice_t *made)
    nvmlReturn_t result = which < MOST_INSTANCES ? NVML_ERROR_NOT_FOUND : NVML_ERROR_INVALID_ARGUMENT;
    if (exists(index, (int)which)) result = handle_to(own(index, (int)which, "uuid"), made);
DONE(result)

ON_CARD(nvmlDeviceGetDeviceHandleFromMigDeviceHandle, nvmlDevice_t *parent)
DONE(instance < 0 ? NVML_ERROR_INVALID_ARGUMENT : handle_of(index, parent))

ON_CARD(nvmlDeviceGetAttributes_v2, nvmlDeviceAttributes_t *attributes)
    memset(attributes, 0, sizeof *attributes);
    if (instance >= 0) attributes->memorySizeMB = own_number(index, instance, "memory_mib");
DONE(instance >= 0 ? NVML_SUCCESS : NVML_ERROR_NOT_SUPPORTED)

ON_CARD(nvmlDeviceGetGpuInstanceId, unsigned int *id)
    if (instance >= 0) *id = own_number(index, instance, "gi");
DONE(instance >= 0 ? NVML_SUCCESS : NVML_ERROR_NOT_SUPPORTED)

ON_CARD(nvmlDeviceGetComputeInstanceId, unsigned int *id)
    if (instance >= 0) *id = own_number(index, instance, "ci");
DONE(instance >= 0 ? NVML_SUCCESS : NVML_ERROR_NOT_SUPPORTED)

/* ---- profiles, which NVIDIA's toolkit looks up before it writes a spec ---- */

/* A GPU instance and a compute instance, with the instance that they belong to. ID of a profile: its number of slices. */
struct part {
    int index, which;
};

static unsigned int slices_of(const struct part *part) { return own_number(part->index, part->which, "profile"); }

static struct part *part_of(int index, int which) {
    struct part *made = calloc(1, sizeof *made);
    *made = (struct part){index, which};
    return made;
}

static int slices_of_profile(unsigned int profile) {
    static const int slices[] = {1, 2, 3, 4, 7};
    return profile < sizeof slices / sizeof *slices ? slices[profile] : 0;
}

ON_CARD(nvmlDeviceGetGpuInstanceById, unsigned int id, nvmlGpuInstance_t *found)
    nvmlReturn_t result = NVML_ERROR_NOT_FOUND;
    for (int k = 0; k < MOST_INSTANCES && result != NVML_SUCCESS; k++)
        if (exists(index, k) && own_number(index, k, "gi") == id) {
            *found = (nvmlGpuInstance_t)part_of(index, k);
            result = NVML_SUCCESS;
        }
DONE(result)

nvmlReturn_t nvmlGpuInstanceGetComputeInstanceById(nvmlGpuInstance_t gpu, unsigned int id, nvmlComputeInstance_t *found) {
    const struct part *part = (const struct part *)gpu;
    nvmlReturn_t result = begin(__func__, 1);
    unsigned int gi = own_number(part->index, part->which, "gi");
    if (result == NVML_SUCCESS) result = NVML_ERROR_NOT_FOUND;
    for (int k = 0; k < MOST_INSTANCES && result == NVML_ERROR_NOT_FOUND; k++)
        if (exists(part->index, k) && own_number(part->index, k, "gi") == gi && own_number(part->index, k, "ci") == id) {
            *found = (nvmlComputeInstance_t)part_of(part->index, k);
            result = NVML_SUCCESS;
        }
    return end(result);
}

nvmlReturn_t nvmlGpuInstanceGetInfo(nvmlGpuInstance_t gpu, nvmlGpuInstanceInfo_t *info) {
    nvmlReturn_t result = begin(__func__, 1);
    memset(info, 0, sizeof *info);
    info->profileId = slices_of((const struct part *)gpu);
    return end(result);
}

nvmlReturn_t nvmlComputeInstanceGetInfo_v2(nvmlComputeInstance_t compute, nvmlComputeInstanceInfo_t *info) {
    nvmlReturn_t result = begin(__func__, 1);
    memset(info, 0, sizeof *info);
    info->profileId = slices_of((const struct part *)compute);
    return end(result);
}

ON_CARD(nvmlDeviceGetGpuInstanceProfileInfo, unsigned int profile, nvmlGpuInstanceProfileInfo_t *info)
    int slices = slices_of_profile(profile);
    if (slices) info->id = info->sliceCount = (unsigned int)slices;
DONE(slices ? NVML_SUCCESS : NVML_ERROR_NOT_SUPPORTED)

nvmlReturn_t nvmlGpuInstanceGetComputeInstanceProfileInfo(nvmlGpuInstance_t gpu, unsigned int profile,
                                                          unsigned int engine, nvmlComputeInstanceProfileInfo_t *info) {
    nvmlReturn_t result = begin(__func__, 1);
    int slices = engine == 0 ? slices_of_profile(profile) : 0;
    (void)gpu;
    if (slices) info->id = info->sliceCount = (unsigned int)slices;
    return end(result != NVML_SUCCESS ? result : slices ? NVML_SUCCESS : NVML_ERROR_NOT_SUPPORTED);
}
