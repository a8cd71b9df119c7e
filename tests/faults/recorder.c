/* Preloaded into a process, this records what it does to the files of one folder: what is written,
 * cut, synced, created, unlinked and renamed, in order, with each line the process reports on one
 * file descriptor in between. From the record a test builds what a power cut leaves behind.
 *
 * STEPWELL_RECORD         the record, appended to
 * STEPWELL_RECORD_FOLDER  the folder, as the kernel names it
 * STEPWELL_RECORD_REPORT  the descriptor whose writes are reports
 *
 * A sync is recorded and not passed on: the test asks what would be on disk, not what is. One lock
 * keeps the record in the order in which things happened; a child process is not recorded.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

struct header {
    uint8_t op; /* W write, T truncate, S sync, D sync of a folder, U unlink, M rename, R report */
    uint8_t pad[3];
    uint32_t path_size;
    uint64_t offset;
    uint64_t size;
    uint64_t inode;
};

static ssize_t (*real_pwrite)(int, const void *, size_t, off_t);
static ssize_t (*real_write)(int, const void *, size_t);
static int (*real_ftruncate)(int, off_t);
static int (*real_fsync)(int);
static int (*real_fdatasync)(int);
static int (*real_unlink)(const char *);
static int (*real_rename)(const char *, const char *);

static pthread_mutex_t turn = PTHREAD_MUTEX_INITIALIZER;
static char folder[PATH_MAX];
static size_t folder_size;
static int record = -1, report = -1;
static pid_t owner;

__attribute__((constructor)) static void start(void) {
    real_pwrite = dlsym(RTLD_NEXT, "pwrite64");
    real_write = dlsym(RTLD_NEXT, "write");
    real_ftruncate = dlsym(RTLD_NEXT, "ftruncate64");
    real_fsync = dlsym(RTLD_NEXT, "fsync");
    real_fdatasync = dlsym(RTLD_NEXT, "fdatasync");
    real_unlink = dlsym(RTLD_NEXT, "unlink");
    real_rename = dlsym(RTLD_NEXT, "rename");
    const char *path = getenv("STEPWELL_RECORD");
    const char *where = getenv("STEPWELL_RECORD_FOLDER");
    const char *fd = getenv("STEPWELL_RECORD_REPORT");
    if (!path || !where || !fd || strlen(where) >= sizeof folder) return;
    strcpy(folder, where);
    folder_size = strlen(folder);
    report = atoi(fd);
    owner = getpid();
    record = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
    if (record < 0) {
        perror("cannot open the record");
        _exit(70);
    }
}

static void note(char op, const char *path, const void *data, uint64_t offset, uint64_t size,
                 uint64_t inode) {
    struct header head = {.op = (uint8_t)op, .path_size = (uint32_t)strlen(path),
                          .offset = offset, .size = size, .inode = inode};
    struct iovec parts[3] = {{&head, sizeof head}, {(void *)path, head.path_size},
                             {(void *)data, data ? size : 0}};
    ssize_t whole = (ssize_t)(sizeof head + head.path_size + parts[2].iov_len);
    int before = errno;
    if (writev(record, parts, 3) != whole) _exit(71); /* a record with a gap proves nothing */
    errno = before;
}

static int inside(const char *path) {
    return strncmp(path, folder, folder_size) == 0 &&
           (path[folder_size] == '/' || path[folder_size] == 0);
}

/* The recorded file or folder behind a descriptor; 0 when it is neither. */
static int recorded(int fd, char *path, struct stat *is) {
    char link[40];
    if (record < 0 || getpid() != owner || fstat(fd, is) != 0) return 0;
    if (!S_ISREG(is->st_mode) && !S_ISDIR(is->st_mode)) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t size = readlink(link, path, PATH_MAX - 1);
    if (size < 0) return 0;
    path[size] = 0;
    return inside(path) && is->st_nlink > 0;
}

static ssize_t wrote(int fd, const void *data, size_t size, off_t offset, int at) {
    char path[PATH_MAX];
    struct stat is;
    if (record >= 0 && fd == report && getpid() == owner) {
        pthread_mutex_lock(&turn);
        note('R', "", data, 0, size, 0);
        pthread_mutex_unlock(&turn);
        return real_write(fd, data, size);
    }
    if (!recorded(fd, path, &is))
        return at ? real_pwrite(fd, data, size, offset) : real_write(fd, data, size);
    pthread_mutex_lock(&turn);
    if (!at) offset = lseek(fd, 0, SEEK_CUR);
    ssize_t done = at ? real_pwrite(fd, data, size, offset) : real_write(fd, data, size);
    if (done > 0) note('W', path, data, (uint64_t)offset, (uint64_t)done, is.st_ino);
    pthread_mutex_unlock(&turn);
    return done;
}

ssize_t pwrite64(int fd, const void *data, size_t size, off_t offset) {
    return wrote(fd, data, size, offset, 1);
}
ssize_t pwrite(int fd, const void *data, size_t size, off_t offset) {
    return wrote(fd, data, size, offset, 1);
}
ssize_t write(int fd, const void *data, size_t size) { return wrote(fd, data, size, 0, 0); }

static int cut(int fd, off_t size) {
    char path[PATH_MAX];
    struct stat is;
    if (!recorded(fd, path, &is)) return real_ftruncate(fd, size);
    pthread_mutex_lock(&turn);
    int failed = real_ftruncate(fd, size);
    if (!failed) note('T', path, NULL, (uint64_t)size, 0, is.st_ino);
    pthread_mutex_unlock(&turn);
    return failed;
}

int ftruncate64(int fd, off_t size) { return cut(fd, size); }
int ftruncate(int fd, off_t size) { return cut(fd, size); }

static int synced(int fd, int (*real)(int)) {
    char path[PATH_MAX];
    struct stat is;
    if (!recorded(fd, path, &is)) return real(fd);
    pthread_mutex_lock(&turn);
    note(S_ISDIR(is.st_mode) ? 'D' : 'S', path, NULL, 0, 0, is.st_ino);
    pthread_mutex_unlock(&turn);
    return 0;
}

int fsync(int fd) { return synced(fd, real_fsync); }
int fdatasync(int fd) { return synced(fd, real_fdatasync); }

int unlink(const char *path) {
    if (record < 0 || getpid() != owner || !inside(path)) return real_unlink(path);
    pthread_mutex_lock(&turn);
    int failed = real_unlink(path);
    if (!failed) note('U', path, NULL, 0, 0, 0);
    pthread_mutex_unlock(&turn);
    return failed;
}

int rename(const char *from, const char *to) {
    if (record < 0 || getpid() != owner || !inside(from)) return real_rename(from, to);
    pthread_mutex_lock(&turn);
    int failed = real_rename(from, to);
    if (!failed) note('M', from, to, 0, strlen(to), 0);
    pthread_mutex_unlock(&turn);
    return failed;
}
