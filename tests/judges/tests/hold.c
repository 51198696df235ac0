/*
 * Loaded into mdadm with LD_PRELOAD, to have md wait for backups.
 *
 * mdadm 4.1 and older kept md at the first sector of a reshape until the first backup was made.
 * Newer ones write "max" to md's sync_max just before the reshape begins, and md then takes no
 * lower number: what they copy to a backup may have been moved already. So the first "max" is left
 * out.
 */
#define _GNU_SOURCE
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

ssize_t write(int fd, const void *data, size_t length)
{
	static int is_held;
	if (!is_held && length == 3 && memcmp(data, "max", 3) == 0) {
		is_held = 1;
		return length;
	}
	return syscall(SYS_write, fd, data, length);
}
