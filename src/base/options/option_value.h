/* option_value.h - one value of an option: from YAML into its field, and back to text. */
#ifndef TTI_BASE_OPTION_VALUE_H
#define TTI_BASE_OPTION_VALUE_H

#include "base/options/option.h"
#include "base/yaml.h"

/* Reads node into the field of row in config.  On failure the field is unchanged, why states the
 * expected and the given value, and *culprit is node or the wrong element of it. */
bool tti_option_read(const tti_option *row, const tti_yaml *node, void *config, tti_str *why,
                     const tti_yaml **culprit);

/* Parses the text after the '=' of an assignment, see tti_options_assign.  The node is allocated in
 * arena. source is for the message about text that is not YAML. */
tutti_status tti_option_node(const char *text, const char *source, tti_arena *arena,
                             const tti_yaml **out);

/* Appends the value of row in config, as YAML (quoted where it must be) or as bare text. */
void tti_option_format(const tti_option *row, const void *config, bool yaml, tti_str *out);

/* Calls visit for each of "a|b|c", cut to TTI_CLIP bytes, until it returns false. */
typedef bool (*tti_word_fn)(const char *word, void *arg);
void tti_each_word(const char *words, tti_word_fn visit, void *arg);

/* The field of row in config. */
static inline void *tti_option_field(const tti_option *row, const void *config) {
    return (char *)(uintptr_t)config + row->offset;
}

#endif /* TTI_BASE_OPTION_VALUE_H */
