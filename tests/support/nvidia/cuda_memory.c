/* Take memory of every card that CUDA finds here: `cuda-memory hold|leave MIB…`, with one process for each MIB.
 *
 * The first process forks the others, and each takes its memory in turn. Output: `total UUID MIB` for each card, as the
 * first process sees it, then for each process and card `process N UUID MIB RESULT`, where RESULT is that of
 * cuMemAlloc or of the first call that failed, 0 for success. With `hold` the processes keep their memory until they
 * are killed. Exit code: 2 if the library or its functions are missing.
 */
#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MIB = 1024 * 1024, MOST_PROCESSES = 16 };

static int (*init)(unsigned int), (*count)(int *), (*uuid)(unsigned char *, int), (*retain)(void **, int);
static int (*make_current)(void *), (*info)(size_t *, size_t *), (*allocate)(unsigned long long *, size_t);

static int load(void) {
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    if (library == NULL) return 0;
    *(void **)&init = dlsym(library, "cuInit");
    *(void **)&count = dlsym(library, "cuDeviceGetCount");
    *(void **)&uuid = dlsym(library, "cuDeviceGetUuid_v2");
    *(void **)&retain = dlsym(library, "cuDevicePrimaryCtxRetain");
    *(void **)&make_current = dlsym(library, "cuCtxSetCurrent");
    *(void **)&info = dlsym(library, "cuMemGetInfo_v2");
    *(void **)&allocate = dlsym(library, "cuMemAlloc_v2");
    return init && count && uuid && retain && make_current && info && allocate;
}

static const char *name_of(int device) {
    static char name[64];
    unsigned char bytes[16] = {0};
    uuid(bytes, device);
    int length = sprintf(name, "GPU-");
    for (int at = 0; at < 16; at++)
        length += sprintf(name + length, "%s%02x", at == 4 || at == 6 || at == 8 || at == 10 ? "-" : "", bytes[at]);
    return name;
}

static void take(int number, size_t mib) {
    int cards = 0, result = init(0);
    if (result == 0) result = count(&cards);
    if (result != 0) printf("process %d none %zu %d\n", number, mib, result);
    for (int device = 0; device < cards; device++) {
        void *context;
        size_t left, total;
        unsigned long long pointer;
        result = retain(&context, device);
        if (result == 0) result = make_current(context);
        if (result == 0) result = info(&left, &total);
        if (result == 0 && number == 0) printf("total %s %zu\n", name_of(device), total / MIB);
        if (result == 0) result = allocate(&pointer, mib * MIB);
        printf("process %d %s %zu %d\n", number, name_of(device), mib, result);
    }
    fflush(stdout);
}

int main(int arguments, char **argument) {
    int processes = arguments - 2, turn[MOST_PROCESSES][2], done[2];
    char byte = 0;
    if (processes < 1 || processes > MOST_PROCESSES || pipe(done) != 0) return 1;
    for (int number = 1; number < processes; number++) {
        if (pipe(turn[number]) != 0) return 1;
        if (fork() != 0) continue;
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (!load() || read(turn[number][0], &byte, 1) != 1) return 2;
        take(number, strtoull(argument[number + 2], NULL, 10));
        if (write(done[1], &byte, 1) != 1) return 1;
        for (;;) pause();
    }
    if (!load()) {
        printf("libcuda is missing, or one of its functions\n");
        return 2;
    }
    take(0, strtoull(argument[2], NULL, 10));
    for (int number = 1; number < processes; number++)
        if (write(turn[number][1], &byte, 1) != 1 || read(done[0], &byte, 1) != 1) return 1;
    printf("END 0.\n");
    fflush(stdout);
    while (strcmp(argument[1], "hold") == 0) pause();
    return 0;
}
