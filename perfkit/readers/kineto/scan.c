// The events of a piece of a trace as columns, in one pass over its text.
//
// It takes a part of what the decoder in Python takes (perfkit/readers/kineto/decoding.py), and gives the same for it.
// Whatever is unusual (a field of another type, an escape in a name, text beyond ASCII, a number with an exponent where
// one is read, a collective, an error) ends the scan with −1: the caller then decodes this piece in Python. So a doubt
// is never decided here.
//
// The text ends with a zero, which no rule below accepts: that is the only check of its end. `LOOKED_AT` bytes from any
// of its bytes on may be looked at, those behind the zero with it.

#include <math.h>
#include <stdint.h>
#include <string.h>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

typedef const uint8_t *Text;

typedef struct {
    int32_t at, size;  // in the piece; of a value as it stands there
} Slice;

enum { OPERATOR, ANNOTATION, RUNTIME, PYTHON, OVERHEAD, ON_DEVICE };  // as in categories.py
enum { KERNEL = ON_DEVICE, COPY, FILL, MARK, NEITHER = -1 };
enum { DIMS, TYPES, STRIDES, CONCRETE, RECORDED };  // raw arguments of an operator, in the order of calls.py
enum { GRID, BLOCK, REGISTERS, SHARED_MEMORY, OCCUPANCY, SHAPE };  // and of a kernel, in that of collect.py

// Distinct texts in the order in which they first came.
typedef struct {
    int32_t *slots;  // `mask` + 1 of them, a power of two; −1 where free
    int32_t *taken;  // the slot of each text
    int64_t mask;
    Slice *texts;
    int64_t count;
} Names;

typedef struct {
    int64_t *pid, *tid;
    int64_t room, count;
} Lanes;

// Arrays of the caller: `room` long, `Names` and `Lanes` too.
typedef struct {
    int64_t room, events, hosts, devices, arrows;
    Names names, device_names;
    Lanes lanes, arrow_lanes;
    int8_t *category;
    int32_t *name, *lane;
    int64_t *sequence, *forward_thread, *correlation;
    double *start, *length;
    Slice *recorded;  // RECORDED an event
    int8_t *kind;
    int32_t *device_name, *device, *stream;
    int64_t *launched_by, *amount;
    double *device_start, *device_length;
    Slice *shape;  // SHAPE an event
    double *arrow_start;
    int32_t *arrow_lane;
    int64_t *arrow_id;
    int8_t *begins;
} Columns;

// ---- JSON, strictly

static Text space(Text p) {
    while (*p == ' ' || *p == '\n' || *p == '\r' || *p == '\t') p++;
    return p;
}

static inline int digit(uint8_t c) { return c >= '0' && c <= '9'; }

static inline int plain(uint8_t c) { return c >= 0x20 && c < 0x80 && c != '"' && c != '\\'; }

enum { LOOKED_AT = 16 };  // bytes at once

// The first byte from `p` on that is not plain.
static inline Text past_plain(Text p) {
#ifdef __SSE2__
    const __m128i space = _mm_set1_epi8(0x20), quote = _mm_set1_epi8('"'), backslash = _mm_set1_epi8('\\');
    for (;; p += LOOKED_AT) {
        __m128i c = _mm_loadu_si128((const __m128i *)p);
        // With a sign, bytes from 0x80 on are below 0x20 too.
        __m128i special = _mm_or_si128(_mm_cmpeq_epi8(c, quote), _mm_cmpeq_epi8(c, backslash));
        int ends = _mm_movemask_epi8(_mm_or_si128(special, _mm_cmplt_epi8(c, space)));
        if (ends) return p + __builtin_ctz(ends);
    }
#else
    while (plain(*p)) p++;
    return p;
#endif
}

// Past the string that opens at `p`; `escaped` is set where it holds an escape.
static Text string(Text p, int *escaped) {
    for (p++;; p++) {
        p = past_plain(p);
        if (*p == '"') return p + 1;
        if (*p != '\\') return NULL;
        *escaped = 1;
        p++;
        if (!*p || !strchr("\"\\/bfnrt", *p)) return NULL;
    }
}

static Text word(Text p, const char *expected) {
    for (; *expected; expected++, p++)
        if (*p != (uint8_t)*expected) return NULL;
    return p;
}

static Text any_number(Text p) {
    if (*p == '-') p++;
    if (*p == '0') p++;
    else if (digit(*p)) while (digit(*p)) p++;
    else return NULL;
    if (*p == '.') {
        if (!digit(*++p)) return NULL;
        while (digit(*p)) p++;
    }
    if (*p == 'e' || *p == 'E') {
        p++;
        if (*p == '+' || *p == '-') p++;
        if (!digit(*p)) return NULL;
        while (digit(*p)) p++;
    }
    return p;
}

enum { DEEPEST = 32 };

// Past the value at `p`, whatever it is.
static Text value(Text p, int depth) {
    int escaped = 0;
    if (depth > DEEPEST) return NULL;
    switch (*p) {
    case '"': return string(p, &escaped);
    case 't': return word(p, "true");
    case 'f': return word(p, "false");
    case 'n': return word(p, "null");
    case '[':
        p = space(p + 1);
        if (*p == ']') return p + 1;
        for (;;) {
            if (!(p = value(p, depth + 1))) return NULL;
            p = space(p);
            if (*p == ']') return p + 1;
            if (*p != ',') return NULL;
            p = space(p + 1);
        }
    case '{':
        p = space(p + 1);
        if (*p == '}') return p + 1;
        for (;;) {
            if (*p != '"' || !(p = string(p, &escaped))) return NULL;
            p = space(p);
            if (*p != ':') return NULL;
            if (!(p = value(space(p + 1), depth + 1))) return NULL;
            p = space(p);
            if (*p == '}') return p + 1;
            if (*p != ',') return NULL;
            p = space(p + 1);
        }
    default: return any_number(p);
    }
}

// ---- numbers that are read

typedef struct {
    uint64_t digits;  // without the point
    int after;        // digits after the point
    int negative, whole;
} Number;

enum { MOST_DIGITS = 19 };  // as many fit into 64 bits

// A number of at most 19 digits without an exponent.
static Text number(Text p, Number *n) {
    int count = 0;
    *n = (Number){.whole = 1, .negative = *p == '-'};
    p += n->negative;
    if (!digit(*p) || (*p == '0' && digit(p[1]))) return NULL;
    for (; digit(*p); p++, count++) n->digits = n->digits * 10 + (*p - '0');
    if (*p == '.') {
        n->whole = 0;
        if (!digit(*++p)) return NULL;
        for (; digit(*p); p++, count++, n->after++) n->digits = n->digits * 10 + (*p - '0');
    }
    return count > MOST_DIGITS || *p == 'e' || *p == 'E' ? NULL : p;
}

static const uint64_t TENS[] = {
    1u, 10u, 100u, 1000u, 10000u, 100000u, 1000000u, 10000000u, 100000000u, 1000000000u, 10000000000u, 100000000000u,
    1000000000000u, 10000000000000u, 100000000000000u, 1000000000000000u, 10000000000000000u, 100000000000000000u,
    1000000000000000000u,
};

static int bits(uint64_t n) { return 64 - __builtin_clzll(n); }

// The double nearest to a number, ties to even, as IEEE 754 wants it.
static double real(const Number *n) {
    double r;
    if (n->after == 0 || n->digits <= 1ull << 53) {
        r = (double)n->digits / (double)TENS[n->after];  // at most one of the two rounds
    } else {
        // A quotient of 63 or 64 bits; what is left over counts as a last bit, so that rounding sees it.
        uint64_t ten = TENS[n->after];
        int shift = 63 + bits(ten) - bits(n->digits);
        unsigned __int128 wide = (unsigned __int128)n->digits << shift;
        uint64_t quotient = (uint64_t)(wide / ten);
        r = ldexp((double)(quotient | (wide % ten != 0)), -shift);
    }
    return n->negative ? -r : r;
}

// A whole number within ±2^62.
static Text whole(Text p, int64_t *into) {
    Number n;
    p = number(p, &n);
    if (!p || !n.whole || n.digits > 1ull << 62) return NULL;
    *into = n.negative ? -(int64_t)n.digits : (int64_t)n.digits;
    return p;
}

// ---- one event

typedef struct {
    Slice recorded[RECORDED], shape[SHAPE];
    int64_t sequence, forward_thread, correlation, device, stream, amount;
    int amount_is_real;
} Args;

static const Args NO_ARGS = {.sequence = -1, .forward_thread = -1, .correlation = -1, .device = -1, .stream = -1,
                             .amount = -1};

// What was once not as a scan takes it; whether that matters the kind of event decides.
enum { ODD_NAME = 1, ODD_CATEGORY = 2, ODD_LANE = 4, TEXT_LANE = 8, ODD_TIME = 16, ODD_ARGS = 32, ODD_ID = 64,
       TEXT_ID = 128, ESCAPED_NAME = 256 };

typedef struct {
    uint8_t phase;
    int odd;
    Slice name, category;
    int64_t pid, tid, id;
    double start, length;
    Args args;
} Event;

#define IS(text) (!memcmp(key, text, sizeof text - 1))

static Text raw(Text begin, Text p, Slice *into) {
    Text end = value(p, 0);
    if (end) *into = (Slice){(int32_t)(p - begin), (int32_t)(end - p)};
    return end;
}

// A device's or stream's number: −1 for one that is none, as `_small` of collect.py has it.
static int32_t numbered(int64_t value) {
    return value < 0 || value > INT32_MAX ? -1 : (int32_t)value;
}

static Text small(Text p, int64_t *into) {
    p = whole(p, into);
    if (p) *into = numbered(*into);
    return p;
}

// The value at `p` of the argument called `key`; NULL where the decoder must look at it.
static Text argument(Text begin, Text key, int64_t size, Text p, Args *args) {
    int escaped = 0;
    Number n;
    switch (size) {
    case sizeof "grid" - 1:
        if (IS("grid")) return raw(begin, p, &args->shape[GRID]);
        if (IS("size")) return NULL;
        break;
    case sizeof "block" - 1:
        if (IS("block")) return raw(begin, p, &args->shape[BLOCK]);
        if (IS("dtype")) return NULL;
        if (IS("bytes")) {
            Text end = number(p, &n);
            if (!end || n.negative || n.digits > 1ull << 62) return NULL;
            args->amount_is_real = !n.whole;
            args->amount = n.whole ? (int64_t)n.digits : -1;
            return end;
        }
        break;
    case sizeof "device" - 1:
        if (IS("device")) return small(p, &args->device);
        if (IS("stream")) return small(p, &args->stream);
        break;
    case sizeof "Input Dims" - 1:
        if (IS("Input Dims")) return raw(begin, p, &args->recorded[DIMS]);
        if (IS("Input type")) return raw(begin, p, &args->recorded[TYPES]);
        if (IS("Group size")) return NULL;
        break;
    case sizeof "correlation" - 1:
        if (IS("correlation")) return whole(p, &args->correlation);
        break;
    case sizeof "Input Strides" - 1:
        if (IS("Input Strides")) return raw(begin, p, &args->recorded[STRIDES]);
        if (IS("Fwd thread id")) return whole(p, &args->forward_thread);
        if (IS("shared memory")) return raw(begin, p, &args->shape[SHARED_MEMORY]);
        if (IS("In msg nelems")) return NULL;
        break;
    case sizeof "Out msg nelems" - 1:
        if (IS("Out msg nelems")) return NULL;
        break;
    case sizeof "Concrete Inputs" - 1:
        if (IS("Concrete Inputs")) return raw(begin, p, &args->recorded[CONCRETE]);
        if (IS("Sequence number")) return whole(p, &args->sequence);
        if (IS("Collective name")) return NULL;
        break;
    case sizeof "Module Hierarchy" - 1:
        if (IS("Module Hierarchy")) return word(p, "\"\"");
        break;
    case sizeof "Process Group Name" - 1:
        if (IS("Process Group Name")) return NULL;
        break;
    case sizeof "registers per thread" - 1:
        if (IS("registers per thread")) return raw(begin, p, &args->shape[REGISTERS]);
        break;
    case sizeof "est. achieved occupancy %" - 1:
        if (IS("est. achieved occupancy %")) return raw(begin, p, &args->shape[OCCUPANCY]);
        if (IS("Process Group Description")) return NULL;
        break;
    }
    return *p == '"' ? string(p, &escaped) : value(p, 0);
}

// From a key without escapes, `size` long, to the value behind it.
static Text past_key(Text p, int64_t *size) {
    int escaped = 0;
    Text key = p + 1;
    if (*p != '"' || !(p = string(p, &escaped)) || escaped) return NULL;
    *size = p - 1 - key;
    p = space(p);
    return *p == ':' ? space(p + 1) : NULL;
}

// The object at `p` as arguments; `odd` is set where the decoder must look, the text past it all the same.
static Text arguments(Text begin, Text p, Event *event) {
    Text opening = p;
    int64_t size;
    event->args = NO_ARGS;
    if (*p != '{') goto odd;
    p = space(p + 1);
    if (*p == '}') return p + 1;
    for (;;) {
        Text key = p + 1;
        if (!(p = past_key(p, &size))) goto odd;
        if (!(p = argument(begin, key, size, p, &event->args))) goto odd;
        p = space(p);
        if (*p == '}') return p + 1;
        if (*p != ',') goto odd;
        p = space(p + 1);
    }
odd:
    event->odd |= ODD_ARGS;
    return value(opening, 0);
}

static Text text(Text begin, Text p, Slice *into, int *odd, int odd_bit, int escaped_bit) {
    int escaped = 0;
    Text end;
    if (*p != '"') {
        *odd |= odd_bit;
        return value(p, 0);
    }
    if (!(end = string(p, &escaped))) return NULL;
    *into = (Slice){(int32_t)(p + 1 - begin), (int32_t)(end - p - 2)};
    if (escaped) *odd |= escaped_bit;
    return end;
}

// A whole number or a text.
static Text whole_or_text(Text p, int64_t *into, int *odd, int odd_bit, int text_bit) {
    int escaped = 0;
    Text end;
    if (*p == '"') {
        *odd |= text_bit;
        return string(p, &escaped);
    }
    if ((end = whole(p, into))) return end;
    *odd |= odd_bit;
    return value(p, 0);
}

static Text instant(Text p, double *into, int *odd) {
    Number n;
    Text end = number(p, &n);
    if (end) {
        *into = real(&n);
        return end;
    }
    *odd |= ODD_TIME;
    return value(p, 0);
}

static Text field(Text begin, Text key, int64_t size, Text p, Event *event) {
    int escaped = 0;
    switch (size) {
    case 2:
        if (IS("ph")) {
            if (event->phase || *p != '"' || !plain(p[1]) || p[2] != '"') return NULL;
            event->phase = p[1];
            return p + 3;
        }
        if (IS("ts")) return instant(p, &event->start, &event->odd);
        if (IS("id")) return whole_or_text(p, &event->id, &event->odd, ODD_ID, TEXT_ID);
        break;
    case 3:
        if (IS("cat")) return text(begin, p, &event->category, &event->odd, ODD_CATEGORY, ODD_CATEGORY);
        if (IS("pid")) return whole_or_text(p, &event->pid, &event->odd, ODD_LANE, TEXT_LANE);
        if (IS("tid")) return whole_or_text(p, &event->tid, &event->odd, ODD_LANE, TEXT_LANE);
        if (IS("dur")) return instant(p, &event->length, &event->odd);
        break;
    case 4:
        if (IS("name")) return text(begin, p, &event->name, &event->odd, ODD_NAME, ESCAPED_NAME);
        if (IS("args")) return arguments(begin, p, event);
        break;
    }
    return *p == '"' ? string(p, &escaped) : value(p, 0);
}

static Text event_at(Text begin, Text p, Event *event) {
    int64_t size;
    event->phase = 0;
    event->odd = 0;
    event->name = event->category = (Slice){0, 0};
    event->pid = event->tid = 0;
    event->id = -1;
    event->start = event->length = 0.0;
    event->args = NO_ARGS;
    if (*p != '{') return NULL;
    p = space(p + 1);
    for (;;) {
        Text key = p + 1;
        if (!(p = past_key(p, &size))) return NULL;
        if (!(p = field(begin, key, size, p, event))) return NULL;
        p = space(p);
        if (*p == '}') return p + 1;
        if (*p != ',') return NULL;
        p = space(p + 1);
    }
}

// ---- distinct texts and lanes

static uint64_t hashed(Text p, int64_t size, uint64_t hash) {
    uint64_t part;
    for (; size >= 8; p += 8, size -= 8) {
        memcpy(&part, p, 8);
        hash = (hash ^ part) * 0x9E3779B97F4A7C15u;
        hash ^= hash >> 32;
    }
    part = (uint64_t)size + 1;
    for (; size > 0; size--) part = part << 8 | *p++;
    hash = (hash ^ part) * 0x9E3779B97F4A7C15u;
    return hash ^ hash >> 29;
}

static int32_t code_of(Text begin, Slice slice, Names *names) {
    int64_t at = (int64_t)hashed(begin + slice.at, slice.size, 0) & names->mask;
    for (;; at = (at + 1) & names->mask) {
        int32_t code = names->slots[at];
        if (code < 0) {
            names->texts[names->count] = slice;
            names->taken[names->count] = (int32_t)at;
            return names->slots[at] = (int32_t)names->count++;
        }
        Slice known = names->texts[code];
        if (known.size == slice.size && !memcmp(begin + known.at, begin + slice.at, slice.size)) return code;
    }
}

// Forget all texts: their slots only, for there are many more than a piece has names.
static void forget(Names *names) {
    while (names->count) names->slots[names->taken[--names->count]] = -1;
}

// The lane of (pid, tid), looked for from the last one on: events of a thread stand together. −1 where none is left.
static int32_t lane_of(int64_t pid, int64_t tid, Lanes *lanes, int64_t last) {
    for (int64_t i = 0, lane = last; i < lanes->count; i++, lane++) {
        if (lane == lanes->count) lane = 0;
        if (lanes->tid[lane] == tid && lanes->pid[lane] == pid) return (int32_t)lane;
    }
    if (lanes->count == lanes->room) return -1;
    lanes->pid[lanes->count] = pid;
    lanes->tid[lanes->count] = tid;
    return (int32_t)lanes->count++;
}

// ---- events into columns; 0 where the decoder must look

static int category_of(Text p, int64_t size) {
    static const struct { const char *word; int8_t size, code; } WORDS[] = {
#define WORD(text, code) {text, sizeof text - 1, code}
        WORD("cpu_op", OPERATOR), WORD("operator", OPERATOR), WORD("user_annotation", ANNOTATION),
        WORD("cuda_runtime", RUNTIME), WORD("cuda_driver", RUNTIME), WORD("python_function", PYTHON),
        WORD("overhead", OVERHEAD), WORD("kernel", KERNEL), WORD("Kernel", KERNEL), WORD("gpu_memcpy", COPY),
        WORD("Memcpy", COPY), WORD("gpu_memset", FILL), WORD("Memset", FILL), WORD("gpu_user_annotation", MARK),
    };
    for (unsigned i = 0; i < sizeof WORDS / sizeof *WORDS; i++)
        if (WORDS[i].size == size && !memcmp(WORDS[i].word, p, size)) return WORDS[i].code;
    return NEITHER;
}

static int add_host(Text begin, const Event *event, int category, Columns *c) {
    int64_t i = c->hosts++;
    const Args *args = &event->args;
    int runtime = category == RUNTIME;
    if (event->odd & TEXT_LANE || (runtime && args->shape[GRID].size)) return 0;
    c->category[i] = (int8_t)category;
    c->name[i] = code_of(begin, event->name, &c->names);
    c->lane[i] = lane_of(event->pid, event->tid, &c->lanes, i ? c->lane[i - 1] : 0);
    c->sequence[i] = runtime ? -1 : args->sequence;
    c->forward_thread[i] = runtime ? -1 : args->forward_thread;
    c->correlation[i] = runtime ? args->correlation : -1;
    c->start[i] = event->start;
    c->length[i] = event->length;
    memcpy(&c->recorded[i * RECORDED], args->recorded, sizeof args->recorded);
    return c->lane[i] >= 0;
}

static int add_device(Text begin, const Event *event, int category, Columns *c) {
    int64_t i = c->devices++;
    const Args *args = &event->args;
    int moves = category == COPY || category == FILL, marks = category == MARK;
    if ((moves && args->amount_is_real) || (marks && event->odd & TEXT_LANE)) return 0;
    c->kind[i] = (int8_t)(category - ON_DEVICE);
    c->device_name[i] = code_of(begin, event->name, &c->device_names);
    // Of a mark they stand where a host event has process and thread.
    c->device[i] = numbered(marks ? event->pid : args->device);
    c->stream[i] = numbered(marks ? event->tid : args->stream);
    c->launched_by[i] = args->correlation;
    c->amount[i] = moves ? args->amount : -1;
    c->device_start[i] = event->start;
    c->device_length[i] = event->length;
    memcpy(&c->shape[i * SHAPE], args->shape, sizeof args->shape);
    return 1;
}

static int add_lasting(Text begin, const Event *event, Columns *c) {
    if (event->odd & (ODD_NAME | ODD_CATEGORY | ODD_LANE | ODD_TIME | ODD_ARGS)) return 0;
    int category = category_of(begin + event->category.at, event->category.size);
    if (category == NEITHER) return 1;
    if (event->odd & ESCAPED_NAME) return 0;
    return category < ON_DEVICE ? add_host(begin, event, category, c) : add_device(begin, event, category, c);
}

static int add_arrow(Text begin, const Event *event, Columns *c) {
    if (event->odd & (ODD_CATEGORY | ODD_LANE | ODD_TIME | ODD_ID)) return 0;
    Text key = begin + event->category.at;
    if (event->category.size != sizeof "fwdbwd" - 1 || !IS("fwdbwd")) return 1;
    if (event->odd & (TEXT_LANE | TEXT_ID)) return 0;
    int64_t i = c->arrows++;
    c->arrow_start[i] = event->start;
    c->arrow_lane[i] = lane_of(event->pid, event->tid, &c->arrow_lanes, i ? c->arrow_lane[i - 1] : 0);
    c->arrow_id[i] = event->id;
    c->begins[i] = event->phase == 's';
    return c->arrow_lane[i] >= 0;
}

// Fill `c` with the events of `begin`, a list and a zero after it; how many there are, −1 where the decoder must look.
int64_t perfkit_scan(Text begin, Columns *c) {
    Event event;
    c->events = c->hosts = c->devices = c->arrows = 0;
    c->lanes.count = c->arrow_lanes.count = 0;
    forget(&c->names);
    forget(&c->device_names);
    Text p = space(begin);
    if (*p != '[') return -1;
    p = space(p + 1);
    if (*p == ']') return -1;
    for (;;) {
        if (c->events++ == c->room || !(p = event_at(begin, p, &event))) return -1;
        int taken = event.phase == 'X'                           ? add_lasting(begin, &event, c)
                    : event.phase == 's' || event.phase == 'f'   ? add_arrow(begin, &event, c)
                    : event.phase && strchr("MiICBEbentPNODRcvV()", event.phase) != NULL;
        if (!taken) return -1;
        p = space(p);
        if (*p == ']') break;
        if (*p != ',') return -1;
        p = space(p + 1);
    }
    return *space(p + 1) ? -1 : c->events;
}

// Number the distinct rows of `count` rows of `wide` slices, where `names` (or nothing) tells rows apart too: `code` of
// each, and in `first` the row in which each number first came. `slots` are `mask` + 1, a power of two above `count`, all
// free before and after; `taken` has room for `count`.
int64_t perfkit_distinct(Text begin, const Slice *rows, int64_t count, int64_t wide, const int32_t *names,
                         int32_t *slots, int32_t *taken, int64_t mask, int32_t *code, int32_t *first) {
    int64_t found = 0;
    for (int64_t i = 0; i < count; i++) {
        const Slice *row = rows + i * wide;
        uint64_t hash = names ? (uint64_t)names[i] : 0;
        for (int64_t k = 0; k < wide; k++) hash = hashed(begin + row[k].at, row[k].size, hash);
        int64_t at = (int64_t)hash & mask;
        for (;; at = (at + 1) & mask) {
            if (slots[at] < 0) {
                first[found] = (int32_t)i;
                taken[found] = (int32_t)at;
                slots[at] = (int32_t)found++;
                break;
            }
            int32_t other = first[slots[at]];
            const Slice *known = rows + other * wide;
            int same = !names || names[other] == names[i];
            for (int64_t k = 0; same && k < wide; k++)
                same = known[k].size == row[k].size && !memcmp(begin + known[k].at, begin + row[k].at, row[k].size);
            if (same) break;
        }
        code[i] = slots[at];
    }
    for (int64_t i = 0; i < found; i++) slots[taken[i]] = -1;
    return found;
}

// The rows numbered `chosen` as one text: `between` after each slice but a row's last, which `after` follows. The size.
int64_t perfkit_joined(Text begin, const Slice *rows, int64_t wide, const int32_t *chosen, int64_t count, int between,
                       int after, uint8_t *into) {
    uint8_t *end = into;
    for (int64_t i = 0; i < count; i++) {
        const Slice *row = rows + chosen[i] * wide;
        for (int64_t k = 0; k < wide; k++) {
            memcpy(end, begin + row[k].at, row[k].size);
            end += row[k].size;
            *end++ = (uint8_t)(k + 1 < wide ? between : after);
        }
    }
    return end - into;
}
