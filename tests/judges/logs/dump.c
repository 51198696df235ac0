/*
 * Prints what md's superblocks say of its logs, and the logs: partial parity logs of members and
 * the write journal, a line for each unit or block and each thing in it. Formats: Linux,
 * include/uapi/linux/raid/md_p.h, and which is the end of a log: drivers/md/raid5-ppl.c and
 * raid5-cache.c. Written for this directory alone, so that another decoder can be held against it.
 *
 *   dump MEMBER...
 *
 * Positions and sizes of logs are in sectors from the start of the area, or of the journal's data.
 */
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { BLOCK = 4096, SECTOR = 512, BLOCK_SECTORS = 8 };

static int file;
static uint64_t area_first, area_sectors;
static uint8_t superblock[BLOCK];

static uint64_t get(const uint8_t *bytes, int count)
{
	uint64_t value = 0;
	while (count--)
		value = value << 8 | bytes[count];
	return value;
}

/* CRC-32C without the inversions at either end. */
static uint32_t crc(uint32_t sum, const uint8_t *bytes, size_t count)
{
	while (count--) {
		sum ^= *bytes++;
		for (int bit = 0; bit < 8; bit++)
			sum = sum >> 1 ^ (sum & 1 ? 0x82f63b78 : 0);
	}
	return sum;
}

static uint32_t crc_without(uint32_t sum, const uint8_t *block, int at)
{
	uint8_t copy[BLOCK];
	memcpy(copy, block, BLOCK);
	memset(copy + at, 0, 4);
	return crc(sum, copy, BLOCK);
}

static int read_area(uint8_t *bytes, uint64_t sector, size_t count)
{
	return pread(file, bytes, count, (area_first + sector) * SECTOR) == (ssize_t)count;
}

static int find_superblock(uint64_t *at)
{
	struct stat status;
	fstat(file, &status);
	uint64_t places[] = { 8, 0, (status.st_size / SECTOR - 16) / 8 * 8 };
	for (int i = 0; i < 3; i++) {
		*at = places[i];
		if (pread(file, superblock, BLOCK, *at * SECTOR) == BLOCK &&
		    get(superblock, 4) == 0xa92b4efc && get(superblock + 144, 8) == *at)
			return 1;
	}
	return 0;
}

/* Partial parity logs. */

static int unit_is_good(const uint8_t *header)
{
	return get(header + 512, 4) == (uint32_t)~crc(~0u, superblock + 16, 16) &&
	       get(header + 532, 4) == (uint32_t)~crc_without(~0u, header, 532) &&
	       get(header + 528, 4) <= 148;
}

/* The unit's length in sectors. */
static uint64_t print_unit(const uint8_t *header, uint64_t at, const char *what)
{
	uint64_t parity_at = at + BLOCK_SECTORS;
	uint32_t count = get(header + 528, 4);
	printf("%s at %lu generation %lu entries %u\n", what, at, get(header + 520, 8), count);
	for (uint32_t i = 0; i < count; i++) {
		const uint8_t *entry = header + 536 + 24 * i;
		uint32_t size = get(entry + 8, 4);
		uint8_t *parity = malloc(size + 1);
		int fits = read_area(parity, parity_at, size) &&
			(uint32_t)~crc(~0u, parity, size) == get(entry + 20, 4);
		if (!strcmp(what, "unit"))
			printf("  data_sector %lu pp_size %u data_size %lu parity_disk %lu %s\n",
			       get(entry, 8), size, get(entry + 12, 4), get(entry + 16, 4),
			       !size ? "mark" : fits ? "good" : "bad");
		free(parity);
		parity_at += size / SECTOR;
	}
	return parity_at - at;
}

static void print_partial_parity(uint64_t at_superblock)
{
	uint8_t header[BLOCK];
	uint64_t at = 0, generation = 0;
	area_first = at_superblock + (int16_t)get(superblock + 96, 2);
	area_sectors = get(superblock + 98, 2);
	printf("ppl at %ld of superblock, %lu sectors\n", (long)(int16_t)get(superblock + 96, 2),
	       area_sectors);
	while (at + BLOCK_SECTORS <= area_sectors && read_area(header, at, BLOCK) &&
	       unit_is_good(header) && get(header + 520, 8) >= generation) {
		generation = get(header + 520, 8);
		at += print_unit(header, at, "unit");
	}
	printf("end at %lu\n", at);
	for (; at + BLOCK_SECTORS <= area_sectors; at += BLOCK_SECTORS)
		if (read_area(header, at, BLOCK) && unit_is_good(header))
			print_unit(header, at, "stale unit");
}

/* The write journal. */

static uint32_t seed;

static int block_is_good(const uint8_t *block, uint64_t at)
{
	return get(block, 4) == 0x6433c509 && block[8] == 1 && get(block + 24, 8) == at &&
	       get(block + 12, 4) <= BLOCK && get(block + 4, 4) == crc_without(seed, block, 4);
}

static uint64_t after(uint64_t at, uint64_t count) { return (at + count) % area_sectors; }

/* Sectors of payload; *good is cleared where a checksum does not fit. */
static uint64_t walk_block(const uint8_t *block, uint64_t at, int prints, int *good)
{
	static const char *types[] = { "data", "parity", "flush" };
	uint64_t payload = 0;
	uint32_t end = get(block + 12, 4);
	for (uint32_t i = 32; i + 16 <= end + 8;) {
		uint32_t type = get(block + i, 2), size = get(block + i + 4, 4);
		if (prints)
			printf("  %s flags %lu size %u", type < 3 ? types[type] : "?",
			       get(block + i + 2, 2), size);
		if (type == 2) {
			for (uint32_t k = 0; prints && k < size; k += 8)
				printf(" %lu", get(block + i + 8 + k, 8));
			i += 8 + size;
		} else {
			if (prints)
				printf(" location %lu", get(block + i + 8, 8));
			for (uint32_t k = 0; k < size / BLOCK_SECTORS; k++) {
				uint8_t page[BLOCK];
				read_area(page, after(at, BLOCK_SECTORS + payload), BLOCK);
				payload += BLOCK_SECTORS;
				if (crc(seed, page, BLOCK) != get(block + i + 16 + 4 * k, 4)) {
					*good = 0;
					printf(prints ? " bad" : "");
				}
			}
			i += 16 + 4 * (size / BLOCK_SECTORS);
		}
		if (prints)
			printf("\n");
	}
	return payload;
}

static void print_journal(void)
{
	uint8_t block[BLOCK];
	uint64_t at = get(superblock + 152, 8), seq = 0, walked = 0;
	area_first = get(superblock + 128, 8);
	area_sectors = get(superblock + 136, 8) / BLOCK_SECTORS * BLOCK_SECTORS;
	seed = crc(~0u, superblock + 16, 16);
	printf("journal of %lu sectors, journal_tail %lu\n", area_sectors, at);
	while (walked < area_sectors && read_area(block, at, BLOCK) && block_is_good(block, at) &&
	       (!walked || get(block + 16, 8) == seq)) {
		int good = 1;
		seq = get(block + 16, 8);
		walk_block(block, at, 0, &good);
		printf("block at %lu seq %lu meta_size %lu %s\n", at, seq, get(block + 12, 4),
		       good ? "good" : "of bad pages: the end");
		if (!good)
			break;
		uint64_t length = BLOCK_SECTORS + walk_block(block, at, 1, &good);
		at = after(at, length);
		walked += length;
		seq++;
	}
	printf("end at %lu, next seq %lu, %lu sectors\n", at, seq, walked);
	for (; walked < area_sectors; walked += BLOCK_SECTORS, at = after(at, BLOCK_SECTORS))
		if (read_area(block, at, BLOCK) && block_is_good(block, at))
			printf("stale block at %lu seq %lu\n", at, get(block + 16, 8));
}

int main(int count, char **names)
{
	for (int i = 1; i < count; i++) {
		uint64_t at;
		file = open(names[i], O_RDONLY);
		if (file < 0 || !find_superblock(&at)) {
			fprintf(stderr, "dump: %s: no superblock\n", names[i]);
			return 1;
		}
		uint32_t features = get(superblock + 8, 4);
		uint32_t role = get(superblock + 256 + 2 * get(superblock + 160, 4), 2);
		printf("%s: role 0x%x features 0x%x events %lu resync_offset 0x%lx data_offset %lu"
		       " data_size %lu\n", names[i], role, features, get(superblock + 200, 8),
		       get(superblock + 208, 8), get(superblock + 128, 8), get(superblock + 136, 8));
		if (features & (1024 | 2048))
			print_partial_parity(at);
		if (role == 0xfffd)
			print_journal();
		close(file);
	}
	return 0;
}
