/* Memory of cards by cgroup, which the stand-ins of NVML and CUDA keep together in the folder `WORLD.memory`:
 *
 *   lock       held while the other files are read or changed
 *   limits     lines `UUID ID PATH SOFT HARD`, in bytes: PATH within the tree of cgroup v2, ID of the directory there
 *   reserved   lines `UUID PATH BYTES`: soft limits set below this cgroup; a cgroup that goes does not give its own back
 *   use-…      of one process that uses CUDA: `ID PATH`, then lines `UUID BYTES`; locked as long as the process lives
 *
 * GPUSHARE_NVIDIA_CGROUPS is a folder that stands for /sys/fs/cgroup, and GPUSHARE_NVIDIA_CGROUP the cgroup of this
 * process, for tests without cgroup v2.
 *
 * In a cgroup namespace of its own, a process finds its cgroup only by a limit that is set on it, so limits on other
 * cgroups above do not hold for it.
 */
#ifndef CGROUP_MEMORY_H
#define CGROUP_MEMORY_H

#define _GNU_SOURCE /* statx */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#define NO_LIMIT UINT64_MAX
#define CGROUP_PATH 1024
#define MOST_LIMITS 4096

struct cgroup {
    uint64_t id; /* 0: unknown */
    char path[CGROUP_PATH];
};

struct limit {
    char uuid[96];
    struct cgroup on;
    uint64_t soft, hard;
};

struct reservation {
    char uuid[96], path[CGROUP_PATH];
    uint64_t bytes;
};

static struct limit limits[MOST_LIMITS];
static int limit_count;

/* ---- files ---- */

static inline const char *path_of_world(void) {
    const char *path = getenv("GPUSHARE_NVIDIA_WORLD");
    return path != NULL && *path ? path : "/etc/gpushare-nvidia/world";
}

static inline char *memory_file(char path[4200], const char *name) {
    snprintf(path, 4200, "%s.memory/%s", path_of_world(), name);
    return path;
}

/* A lock to give to `unlock_memory`; -1 where this process may not write, which then sees what others have written. */
static inline int lock_memory(void) {
    char path[4200];
    if (mkdir(memory_file(path, ""), 0777) == 0) chmod(path, 0777);
    int lock = open(memory_file(path, "lock"), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (lock >= 0) flock(lock, LOCK_EX);
    return lock;
}

static inline void unlock_memory(int lock) {
    if (lock >= 0) close(lock);
}

/* Read `limits`. Called with the lock. */
static inline void read_limits(void) {
    char path[4200];
    FILE *file = fopen(memory_file(path, "limits"), "re");
    limit_count = 0;
    if (file == NULL) return;
    struct limit one;
    while (limit_count < MOST_LIMITS && fscanf(file, "%95s %lu %1023s %lu %lu", one.uuid, &one.on.id, one.on.path,
                                               &one.soft, &one.hard) == 5)
        limits[limit_count++] = one;
    fclose(file);
}

/* ---- cgroups ---- */

/* The directory's identity, which no later one at its path has; 0: there is none. */
static inline uint64_t identity(const char *directory) {
    struct statx found;
    if (statx(AT_FDCWD, directory, 0, STATX_INO | STATX_BTIME, &found) != 0 || !S_ISDIR(found.stx_mode)) return 0;
    return found.stx_ino ^ ((uint64_t)found.stx_btime.tv_sec << 32) ^ ((uint64_t)found.stx_btime.tv_nsec << 24);
}

static inline int is_at_or_below(const char *path, const char *above) {
    size_t length = strcmp(above, "/") == 0 ? 0 : strlen(above);
    return strncmp(path, above, length) == 0 && (path[length] == '/' || path[length] == '\0');
}

/* The cgroup that this process is in. Called after `read_limits`. */
static inline struct cgroup own_cgroup(void) {
    const char *given = getenv("GPUSHARE_NVIDIA_CGROUP");
    struct cgroup own = {0, "/"};
    struct statfs at;
    char row[CGROUP_PATH + 4];
    if (given != NULL) {
        snprintf(own.path, sizeof own.path, "%s", given);
        return own;
    }
    FILE *file = fopen("/proc/self/cgroup", "re");
    while (file != NULL && fgets(row, sizeof row, file) != NULL)
        if (sscanf(row, "0::%1023s", own.path) == 1) break;
    if (file != NULL) fclose(file);
    if (strcmp(own.path, "/") != 0 || statfs("/sys/fs/cgroup", &at) != 0 || at.f_type != CGROUP2_SUPER_MAGIC) return own;
    own.id = identity("/sys/fs/cgroup");
    for (int i = 0; i < limit_count; i++)
        if (limits[i].on.id == own.id) own = limits[i].on;
    return own;
}

/* ---- use ---- */

/* PID of the process that holds the file of its use, as this process sees it; 0: out of sight. */
static inline int holder(int file) {
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    if (fcntl(file, F_GETLK, &lock) != 0) return 0;
    return lock.l_type == F_UNLCK ? (int)getpid() : lock.l_pid;
}

/* Call `take` for each card that a living process uses. Called with the lock. */
static inline void each_use(void (*take)(const struct cgroup *of, const char *uuid, uint64_t bytes, int pid, void *sum),
                            void *sum) {
    char path[4200], name[300], uuid[96];
    DIR *folder = opendir(memory_file(path, ""));
    if (folder == NULL) return;
    for (struct dirent *entry; (entry = readdir(folder)) != NULL;) {
        struct cgroup of;
        uint64_t bytes;
        snprintf(name, sizeof name, "%s", entry->d_name);
        if (strncmp(name, "use-", 4) != 0) continue;
        FILE *file = fopen(memory_file(path, name), "re");
        if (file == NULL) continue;
        if (flock(fileno(file), LOCK_EX | LOCK_NB) == 0) /* its process has ended */
            unlink(path);
        else if (fscanf(file, "%lu %1023s", &of.id, of.path) == 2)
            for (int pid = holder(fileno(file)); fscanf(file, "%95s %lu", uuid, &bytes) == 2;)
                take(&of, uuid, bytes, pid, sum);
        fclose(file);
    }
    closedir(folder);
}

/* Sum of what processes use on a card. at: in this cgroup and below; NULL: all. */
struct use {
    const char *uuid;
    const struct cgroup *at;
    uint64_t bytes;
};

static inline void add_use(const struct cgroup *of, const char *uuid, uint64_t bytes, int pid, void *sum) {
    struct use *use = sum;
    (void)pid;
    if (strcmp(uuid, use->uuid) != 0) return;
    if (use->at == NULL || (of->id != 0 && of->id == use->at->id) || is_at_or_below(of->path, use->at->path))
        use->bytes += bytes;
}

static inline uint64_t used_bytes(const char *uuid, const struct cgroup *at) {
    struct use sum = {uuid, at, 0};
    each_use(add_use, &sum);
    return sum.bytes;
}

#endif
