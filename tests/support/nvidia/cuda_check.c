/* What CUDA says in this container: `cuInit N`, then a line `device I UUID` for each card. Exit code: 0 for cuInit 0. */
#include <dlfcn.h>
#include <stdio.h>

typedef int (*init_t)(unsigned int);
typedef int (*count_t)(int *);
typedef int (*uuid_t_)(unsigned char *, int);

int main(void) {
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    if (library == NULL) {
        printf("no libcuda: %s\n", dlerror());
        return 2;
    }
    init_t init = (init_t)dlsym(library, "cuInit");
    count_t count = (count_t)dlsym(library, "cuDeviceGetCount");
    uuid_t_ uuid = (uuid_t_)dlsym(library, "cuDeviceGetUuid_v2");
    if (init == NULL || count == NULL || uuid == NULL) {
        printf("libcuda has no cuInit, cuDeviceGetCount or cuDeviceGetUuid_v2\n");
        return 2;
    }
    int result = init(0), cards = 0;
    printf("cuInit %d\n", result);
    if (result != 0 || count(&cards) != 0) return 1;
    for (int i = 0; i < cards; i++) {
        unsigned char bytes[16] = {0};
        uuid(bytes, i);
        printf("device %d GPU-", i);
        for (int at = 0; at < 16; at++) printf("%s%02x", at == 4 || at == 6 || at == 8 || at == 10 ? "-" : "", bytes[at]);
        printf("\n");
    }
    return 0;
}
