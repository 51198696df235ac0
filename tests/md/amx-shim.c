/*
 * Loaded into User-Mode Linux (Debian 12's, 6.1) with LD_PRELOAD, for CPUs with large vector state,
 * and to be quick.
 *
 * UML keeps a task's floating point state in a fixed buffer of about 2.7 KB and gives that to
 * ptrace(PTRACE_SETREGSET, NT_X86_XSTATE). Where the CPU has AMX the host wants the whole XSAVE
 * area (some 11 KB) and answers EFAULT, and no guest program starts. So: read the whole area, lay
 * what UML knows over its beginning, write the whole area. The rest is AMX tile state, which no
 * guest task can have.
 *
 * Disks of a guest need not outlast a power cut of this machine: they are in its memory as well.
 */
#define _GNU_SOURCE
#include <elf.h>
#include <errno.h>
#include <stdarg.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

static char area[1 << 16] __attribute__((aligned(64)));

long ptrace(enum __ptrace_request request, ...)
{
	va_list arguments;
	va_start(arguments, request);
	pid_t pid = va_arg(arguments, pid_t);
	void *addr = va_arg(arguments, void *);
	void *data = va_arg(arguments, void *);
	va_end(arguments);

	if (request == PTRACE_SETREGSET && (unsigned long)addr == NT_X86_XSTATE) {
		struct iovec part = *(struct iovec *)data;
		struct iovec whole = { area, sizeof(area) };

		if (syscall(SYS_ptrace, PTRACE_GETREGSET, pid, addr, &whole) == 0 &&
		    part.iov_len < whole.iov_len) {
			memcpy(area, part.iov_base, part.iov_len);
			return syscall(SYS_ptrace, request, pid, addr, &whole);
		}
	}
	if (request == PTRACE_PEEKTEXT || request == PTRACE_PEEKDATA || request == PTRACE_PEEKUSER) {
		long word = 0; /* libc returns the word, the system call stores it */
		long failed = syscall(SYS_ptrace, request, pid, addr, &word);

		if (failed)
			return failed;
		errno = 0;
		return word;
	}
	return syscall(SYS_ptrace, request, pid, addr, data);
}

int fsync(int file)
{
	(void)file;
	return 0;
}

int fdatasync(int file)
{
	(void)file;
	return 0;
}
