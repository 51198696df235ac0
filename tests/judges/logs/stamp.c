/*
 * Numbered writes for fixtures of md's logs: what a block holds says which write put it there.
 *
 * Every 512-byte sector of a block of 4 KiB is 32 times the same 16 bytes, as four little-endian
 * u32: the number of the write, the block, the sector within the block, and MIX of these three.
 * Write 0 is all zeroes. So content compresses well, and no two blocks or writes are alike.
 *
 *   stamp fill DEVICE FIRST COUNT     blocks FIRST.. get write 1
 *   stamp write DEVICE FIRST COUNT CHILDREN UNIT MOST SEED WRITES
 *       CHILDREN processes write at once, directly, 1 to MOST blocks at a time, WRITES in all
 *       (0: for ever), numbered from SEED times 10000. Each has units of UNIT blocks of its own,
 *       so writes to a block have an order.
 *       "b NUMBER BLOCK COUNT" is printed before a write, "d NUMBER" when it was answered.
 *   stamp read DEVICE                 prints "BLOCK NUMBER" of each block that is not zero;
 *       the numbers of its sectors with commas where they differ, "?" for what is no stamp
 *   stamp torn MEMBER OFFSET LENGTH [MEMBER OFFSET LENGTH]...
 *       the number of 4 KiB rows whose sum (xor) over all members is not zero; bytes
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { BLOCK = 4096, SECTOR = 512, SECTORS = BLOCK / SECTOR, LONGEST = 256 };

static void fail(const char *what)
{
	fprintf(stderr, "stamp: %s: %s\n", what, strerror(errno));
	exit(1);
}

static uint32_t mix(uint32_t number, uint32_t block, uint32_t sector)
{
	uint64_t sum = number * 0x9e3779b97f4a7c15u + block * 0xc2b2ae3d27d4eb4fu + sector;
	sum = (sum ^ sum >> 29) * 0xbf58476d1ce4e5b9u;
	return sum >> 32;
}

static void stamp(uint32_t *words, uint32_t number, uint32_t block)
{
	for (uint32_t at = 0; at < BLOCK / 4; at += 4) {
		uint32_t sector = at * 4 / SECTOR;
		words[at] = number;
		words[at + 1] = block;
		words[at + 2] = sector;
		words[at + 3] = mix(number, block, sector);
	}
}

static void put(int device, char *buffer, uint32_t number, uint32_t block, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++)
		stamp((uint32_t *)(buffer + (size_t)i * BLOCK), number, block + i);
	ssize_t length = (ssize_t)count * BLOCK;
	if (pwrite(device, buffer, length, (off_t)block * BLOCK) != length)
		fail("write");
}

static uint32_t random_below(uint64_t *state, uint32_t bound)
{
	*state = *state * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)(*state >> 33) % bound;
}

struct writes { uint32_t first, count, children, unit, most, seed, total; };

static void child(int device, char *buffer, const struct writes *writes, uint32_t me)
{
	uint64_t state = writes->seed * 1000003u + me;
	uint32_t units = writes->count / writes->unit / writes->children;
	char line[64];
	for (uint32_t turn = 0; !writes->total || turn < writes->total / writes->children; turn++) {
		uint32_t number = writes->seed * 10000 + turn * writes->children + me;
		uint32_t unit = random_below(&state, units) * writes->children + me;
		uint32_t most = writes->most < writes->unit ? writes->most : writes->unit;
		uint32_t count = 1 + random_below(&state, most);
		uint32_t at = random_below(&state, writes->unit - count + 1);
		uint32_t block = writes->first + unit * writes->unit + at;
		int length = sprintf(line, "b %u %u %u\n", number, block, count);
		if (write(1, line, length) != length)
			fail("stdout");
		put(device, buffer, number, block, count);
		length = sprintf(line, "d %u\n", number);
		if (write(1, line, length) != length)
			fail("stdout");
	}
	exit(0);
}

static void name_sectors(char *text, const uint32_t *words, uint32_t block)
{
	int alike = 1;
	char *end = text;
	uint32_t expected[BLOCK / 4];
	for (uint32_t sector = 0; sector < SECTORS; sector++) {
		const uint32_t *here = words + sector * SECTOR / 4;
		alike &= here[0] == words[0];
		stamp(expected, here[0], block);
		int zero = here[0] == 0 && !memcmp(here, here + 1, SECTOR - 4);
		if (zero || !memcmp(here, expected + sector * SECTOR / 4, SECTOR)) {
			end += sprintf(end, "%s%u", sector ? "," : "", here[0]);
		} else {
			end += sprintf(end, "%s?", sector ? "," : "");
			alike = 0;
		}
	}
	if (alike)
		*strchr(text, ',') = 0;
}

static void read_all(int device, char *buffer)
{
	char text[SECTORS * 12];
	for (uint32_t block = 0;; block++) {
		ssize_t length = pread(device, buffer, BLOCK, (off_t)block * BLOCK);
		if (length < 0)
			fail("read");
		if (length < BLOCK)
			return;
		name_sectors(text, (uint32_t *)buffer, block);
		if (strcmp(text, "0"))
			printf("%u %s\n", block, text);
	}
}

static void sum_rows(int count, char **words)
{
	int members = count / 3, torn = 0;
	int *files = calloc(members, sizeof *files);
	uint64_t row[BLOCK / 8], sum[BLOCK / 8];
	for (int i = 0; i < members; i++)
		if ((files[i] = open(words[3 * i], O_RDONLY)) < 0)
			fail(words[3 * i]);
	for (long at = 0; at < atol(words[2]); at += BLOCK) {
		memset(sum, 0, BLOCK);
		for (int i = 0; i < members; i++) {
			if (pread(files[i], row, BLOCK, atol(words[3 * i + 1]) + at) != BLOCK)
				fail(words[3 * i]);
			for (int k = 0; k < BLOCK / 8; k++)
				sum[k] ^= row[k];
		}
		for (int k = 0; k < BLOCK / 8; k++)
			if (sum[k]) {
				torn++;
				break;
			}
	}
	printf("%d\n", torn);
}

static uint32_t number(const char *text) { return strtoul(text, NULL, 10); }

int main(int count, char **words)
{
	if (count < 3)
		return 2;
	if (!strcmp(words[1], "torn")) {
		sum_rows(count - 2, words + 2);
		return 0;
	}
	int reads = !strcmp(words[1], "read");
	int device = open(words[2], reads ? O_RDONLY : O_RDWR | O_DIRECT);
	char *buffer = aligned_alloc(BLOCK, LONGEST * BLOCK);
	if (device < 0 || !buffer)
		fail(words[2]);
	if (reads) {
		read_all(device, buffer);
	} else if (!strcmp(words[1], "fill") && count == 5) {
		uint32_t end = number(words[3]) + number(words[4]);
		for (uint32_t block = number(words[3]); block < end; block++)
			put(device, buffer, 1, block, 1);
	} else if (!strcmp(words[1], "write") && count == 10) {
		struct writes writes = { number(words[3]), number(words[4]), number(words[5]),
			number(words[6]), number(words[7]), number(words[8]), number(words[9]) };
		for (uint32_t me = 0; me < writes.children; me++)
			if (!fork())
				child(device, buffer, &writes, me);
		int status, failed = 0;
		while (wait(&status) > 0)
			failed |= status;
		return failed != 0;
	} else {
		return 2;
	}
	return 0;
}
