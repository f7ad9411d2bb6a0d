/*
 * selector_items.h - what a selector's text was read into (selector.c), for whoever
 * resolves it (resolve.c).
 */
#ifndef SONDE_OBSERVE_SELECTOR_ITEMS_H
#define SONDE_OBSERVE_SELECTOR_ITEMS_H

#include <sonde/selector.h>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

typedef enum sonde__observe_item_kind {
    SONDE__ITEM_EXACT,
    SONDE__ITEM_GLOB,
    SONDE__ITEM_REGEX,
    SONDE__ITEM_COLLECTION,
    SONDE__ITEM_MODULE
} sonde__observe_item_kind;

enum { SONDE__ROLE_ALL = -1 };

typedef struct sonde__observe_item {
    sonde__observe_item_kind kind;
    char *text; /* without its prefix, commas plain */
    size_t at;  /* where that begins in the selector's text */
    int role;   /* of a collection: a sonde_role, or SONDE__ROLE_ALL */
    pcre2_code *code;
} sonde__observe_item;

struct sonde_selector {
    char *text;
    bool whole; /* the text is one item of its kind, commas included */
    sonde__observe_item *items;
    size_t count, capacity;
    pcre2_general_context *memory; /* ours, so that PCRE2 allocates through the seam */
};

#endif
