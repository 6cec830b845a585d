/* recognize.h - what a graph's written-out computations were recognized as, for reports. */
#ifndef TTI_PASSES_RECOGNIZE_RECOGNIZE_H
#define TTI_PASSES_RECOGNIZE_RECOGNIZE_H

#include "base/str.h"
#include "ir/graph.h"

/* One replacement, or one computation that stayed as it was. */
typedef struct tti_finding {
    const char *name; /* of the pattern: static */
    char *module;     /* the module that it lies in; owned */
    const char *why;  /* of what stayed: the reason; static; NULL: it was replaced */
    double n_bytes;   /* of what stayed: more bytes than one op would keep, per sample */
} tti_finding;

typedef struct tti_findings {
    tti_finding *v; /* [n], owned */
    int n, cap;
    bool failed;      /* out of memory */
    tti_finding lost; /* then: what an entry would be */
} tti_findings;

/* Replaces what is written out in primitive operators by our ops, as the pass "recognize" does, and
 * removes what is left over.  found: receives the replacements; may be NULL. */
tutti_status tti_recognize(tutti_graph **g, tti_findings *found);

/* Adds what looks like a pattern of the table and stayed, in a graph that was recognized for
 * n_samples rows. */
tutti_status tti_find_unrecognized(const tutti_graph *g, int64_t n_samples, tti_findings *found);

/* Adds lines for people: counts by pattern and module, then what stayed and what it costs. */
void tti_findings_print(const tti_findings *found, tti_str *out);
void tti_findings_fini(tti_findings *found);

/* Adds a replacement at a node; the caller may set why and n_bytes of the new entry. */
tti_finding *tti_findings_add(tti_findings *found, const char *name, const tti_node *at);

/* The same for a whole graph and people: simplifies and recognizes *g, and adds the lines; none if
 * nothing looks like a pattern. */
tutti_status tti_recognize_report(tutti_graph **g, int64_t n_samples, tti_str *out);

#endif /* TTI_PASSES_RECOGNIZE_RECOGNIZE_H */
