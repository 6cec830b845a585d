/* symbols.c - finds the mapped file of an address in /proc/PID/maps, then the function in the
 * file's symbol table.  All offsets in a file are checked: it may be damaged or replaced. */
#include "launch/symbols.h"

#include <elf.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "base/files/plain_file.h"

typedef struct image {
    const unsigned char *data;
    size_t n_bytes;
} image;

/* The buffer for a name. */
typedef struct text_room {
    char *text;
    size_t n_bytes;
} text_room;

/* Returns the table with n_items items at an offset, or NULL if it is not completely inside the
 * file. */
static const void *table_at(const image *file, uint64_t offset, uint64_t n_items, size_t each) {
    if (offset > file->n_bytes || n_items > (file->n_bytes - offset) / each) return NULL;
    return file->data + offset;
}

static const Elf64_Ehdr *header_of(const image *file) {
    const Elf64_Ehdr *h = table_at(file, 0, 1, sizeof *h);
    bool ok = h && memcmp(h->e_ident, ELFMAG, SELFMAG) == 0 && h->e_ident[EI_CLASS] == ELFCLASS64 &&
              h->e_phentsize == sizeof(Elf64_Phdr) &&
              (h->e_shnum == 0 || h->e_shentsize == sizeof(Elf64_Shdr));
    return ok ? h : NULL;
}

/* Converts a file offset to the virtual address in the file's program headers. */
static bool address_of(const image *file, const Elf64_Ehdr *h, uint64_t offset, uint64_t *out) {
    const Elf64_Phdr *p = table_at(file, h->e_phoff, h->e_phnum, sizeof *p);
    for (int i = 0; p && i < h->e_phnum; i++) {
        if (p[i].p_type != PT_LOAD || offset < p[i].p_offset) continue;
        if (offset - p[i].p_offset >= p[i].p_filesz) continue;
        *out = offset - p[i].p_offset + p[i].p_vaddr;
        return true;
    }
    return false;
}

/* Copies the name of the function that contains address, from one symbol table. */
static bool find_in_table(const image *file, const Elf64_Shdr *s, const Elf64_Shdr *strings,
                          uint64_t address, const text_room *out) {
    uint64_t n = s->sh_size / sizeof(Elf64_Sym);
    const Elf64_Sym *symbols = table_at(file, s->sh_offset, n, sizeof *symbols);
    const char *names = table_at(file, strings->sh_offset, strings->sh_size, 1);
    for (uint64_t i = 0; symbols && names && i < n; i++) {
        const Elf64_Sym *at = &symbols[i];
        if (ELF64_ST_TYPE(at->st_info) != STT_FUNC || address < at->st_value ||
            address - at->st_value >= at->st_size || at->st_name >= strings->sh_size)
            continue;
        size_t most = (size_t)(strings->sh_size - at->st_name);
        snprintf(out->text, out->n_bytes, "%.*s", (int)(most < 200 ? most : 200),
                 names + at->st_name);
        return true;
    }
    return false;
}

static bool find_in_image(const image *file, uint64_t offset, const text_room *out) {
    const Elf64_Ehdr *h = header_of(file);
    uint64_t address;
    if (!h || !address_of(file, h, offset, &address)) return false;
    const Elf64_Shdr *s = table_at(file, h->e_shoff, h->e_shnum, sizeof *s);
    for (int i = 0; s && i < h->e_shnum; i++) {
        bool has_symbols = s[i].sh_type == SHT_SYMTAB || s[i].sh_type == SHT_DYNSYM;
        if (!has_symbols || s[i].sh_link >= h->e_shnum) continue;
        if (find_in_table(file, &s[i], &s[s[i].sh_link], address, out)) return true;
    }
    return false;
}

static bool find_in_file(const char *path, uint64_t offset, const text_room *out) {
    struct stat info;
    int fd;
    bool found = false;
    if (tti_plain_file_open(path, O_RDONLY | O_CLOEXEC, &fd) != TUTTI_OK) {
        tti_clear_error();
        return false;
    }
    if (fstat(fd, &info) == 0 && info.st_size > 0) {
        size_t n_bytes = (size_t)info.st_size;
        void *data = mmap(NULL, n_bytes, PROT_READ, MAP_PRIVATE, fd, 0);
        if (data != MAP_FAILED) {
            const image file = {data, n_bytes};
            found = find_in_image(&file, offset, out);
            munmap(data, n_bytes);
        }
    }
    close(fd);
    return found;
}

void tti_symbol_of(int pid, uint64_t pc, char *out, size_t n_bytes) {
    char path[64], line[1200];
    const text_room room = {out, n_bytes};
    snprintf(out, n_bytes, "0x%" PRIx64, pc);
    snprintf(path, sizeof path, "/proc/%d/maps", pid);
    FILE *maps = fopen(path, "re");
    while (maps && fgets(line, sizeof line, maps)) {
        uint64_t from, to, offset;
        int name = -1;
        if (sscanf(line, "%" SCNx64 "-%" SCNx64 " %*s %" SCNx64 " %*s %*s %n", &from, &to, &offset,
                   &name) < 3 ||
            name < 0 || pc < from || pc >= to)
            continue;
        line[strcspn(line, "\n")] = '\0';
        const char *file = line + name, *base = strrchr(file, '/');
        if (base && !find_in_file(file, pc - from + offset, &room))
            snprintf(out, n_bytes, "%s+0x%" PRIx64, base + 1, pc - from + offset);
        break;
    }
    if (maps) fclose(maps);
}
