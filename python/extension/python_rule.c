/*
 * python_rule.c - rules written in Python: a row (<sonde/rule.h>) for each, the functions of
 * which call the methods of an object of python/sonde/rules.py.
 *
 *     add_rules      one row for each object; the engine calls them while it judges
 *     drop_rules     when the engine calls no more: lets the objects go
 *     free_rules     after the engine is destroyed, because findings refer to a row
 *
 * Each call takes the interpreter's lock. A method returns None, or a list of what the rule
 * reports, as tuples that begin with a word; this file passes them on:
 *
 *     ("found", where, severity, statistic, value, threshold, message, advice)
 *                     where: the index of a tensor, -1, or (name, file, line)
 *     ("lacked", text)
 *     ("fail", text)
 *
 * An exception of the user's rule becomes "fail" in Python. What still arrives here is
 * KeyboardInterrupt, which the program gets once the step is judged, or a fault of ours.
 */
#include "extension/python_api.h"

#include <string.h>

typedef struct python_rule {
    sonde_rule row; /* the first: a row is its python_rule */
    sonde_rule_need *needs;
    PyObject *judge;       /* its methods are called; NULL: dropped */
    PyObject *description; /* holds the texts of the row */
    PyObject *texts;       /* {text: itself} of findings, which refer to them */
    unsigned long *judging;
} python_rule;

struct sonde__python_rules {
    size_t count;
    python_rule rules[];
};

/* --- calls -------------------------------------------------------------------------- */

/* What is restored after a call. */
typedef struct call {
    PyGILState_STATE state;
    PyObject *type, *value, *trace;
    unsigned long before;
} call;

static python_rule *rule_of(const sonde_rule_run *run)
{
    union { /* the row is not const where it was made */
        const sonde_rule *row;
        python_rule *rule;
    } same = {.row = sonde_rule_row(run)};

    return same.rule;
}

/* False: the rule was dropped, and nothing was taken. */
static bool enter(const python_rule *self, call *now)
{
    if (self->judge == NULL) {
        return false;
    }
    now->state = PyGILState_Ensure();
    PyErr_Fetch(&now->type, &now->value, &now->trace);
    now->before = 0;
    if (self->judging != NULL) {
        now->before = *self->judging;
        *self->judging = PyThread_get_thread_ident();
    }
    return true;
}

static void leave(const python_rule *self, const call *now)
{
    if (self->judging != NULL) {
        *self->judging = now->before;
    }
    PyErr_Restore(now->type, now->value, now->trace);
    PyGILState_Release(now->state);
}

/* The exception that is set switches the rule off; an interrupt is for the program. */
static void fail(sonde_rule_run *run)
{
    PyObject *type = NULL, *value = NULL, *trace = NULL, *text = NULL, *bytes = NULL;

    if (PyErr_ExceptionMatches(PyExc_KeyboardInterrupt) != 0) {
        PyErr_Clear();
        PyErr_SetInterrupt();
        return;
    }
    PyErr_Fetch(&type, &value, &trace);
    text = value != NULL ? PyObject_Str(value) : NULL;
    bytes = text != NULL ? PyUnicode_AsEncodedString(text, "utf-8", "backslashreplace")
                         : NULL;
    sonde_rule_fail(run, "%s", bytes != NULL ? PyBytes_AsString(bytes) : "an exception");
    Py_XDECREF(bytes);
    Py_XDECREF(text);
    Py_XDECREF(type);
    Py_XDECREF(value);
    Py_XDECREF(trace);
    PyErr_Clear();
}

/* The bytes of a text that a finding refers to, kept as long as the row. */
static const char *keep_text(python_rule *self, PyObject *text)
{
    PyObject *kept = PyDict_GetItemWithError(self->texts, text);

    if (kept == NULL && PyErr_Occurred() == NULL &&
        PyDict_SetItem(self->texts, text, text) == 0) {
        kept = text;
    }
    return kept != NULL ? PyUnicode_AsUTF8AndSize(kept, NULL) : NULL;
}

/* sonde_rule_found or, if where is (name, file, line), sonde_rule_found_at; false: there is
 * an exception. */
static bool report_at(sonde_rule_run *run, PyObject *where, int severity,
                      const char *statistic, double value, double threshold, bool *first)
{
    const char *name = NULL;
    sonde_place place = {NULL, 0};
    Py_ssize_t tensor = 0;
    size_t count = 0;

    if (PyTuple_Check(where)) {
        if (!PyArg_ParseTuple(where, "ssi", &name, &place.file, &place.line)) {
            return false;
        }
        *first = sonde_rule_found_at(run, name, place, (sonde_severity)severity,
                                     statistic, value, threshold);
        return true;
    }
    tensor = PyLong_AsSsize_t(where);
    (void)sonde_rule_tensors(run, &count);
    if (PyErr_Occurred() != NULL) {
        return false;
    }
    *first = tensor < (Py_ssize_t)count &&
             sonde_rule_found(run, tensor < 0 ? SONDE_RULE_WHOLE_RUN : (size_t)tensor,
                              (sonde_severity)severity, statistic, value, threshold);
    return true;
}

static bool report_found(sonde_rule_run *run, PyObject *event)
{
    python_rule *self = rule_of(run);
    const char *word = NULL, *message = NULL, *statistic = NULL, *advice = NULL;
    PyObject *where = NULL, *statistic_text = NULL, *advice_text = NULL;
    int severity = 0;
    double value = 0.0, threshold = 0.0;
    bool first = false;

    if (!PyArg_ParseTuple(event, "sOiUddsO", &word, &where, &severity, &statistic_text,
                          &value, &threshold, &message, &advice_text)) {
        return false;
    }
    statistic = keep_text(self, statistic_text);
    advice = advice_text != Py_None ? keep_text(self, advice_text) : NULL;
    if (statistic == NULL || (advice == NULL && advice_text != Py_None) ||
        !report_at(run, where, severity, statistic, value, threshold, &first)) {
        return PyErr_Occurred() == NULL;
    }
    if (first) {
        sonde_rule_say(run, advice, "%s", message);
    }
    return true;
}

static bool report(sonde_rule_run *run, PyObject *event)
{
    const char *word = NULL, *text = NULL;

    if (PyTuple_Size(event) > 2) {
        return report_found(run, event);
    }
    if (!PyArg_ParseTuple(event, "ss", &word, &text)) {
        return false;
    }
    if (strcmp(word, "lacked") == 0) {
        sonde_rule_lacked(run, "%s", text);
    } else {
        sonde_rule_fail(run, "%s", text);
    }
    return true;
}

/* Takes result: None, a list of reports, or NULL with an exception. */
static void answer(sonde_rule_run *run, PyObject *result)
{
    bool good = result != NULL;

    for (Py_ssize_t i = 0; good && result != Py_None && i < PyList_Size(result); i++) {
        good = report(run, PyList_GetItem(result, i));
    }
    if (!good || PyErr_Occurred() != NULL) {
        fail(run);
    }
    Py_XDECREF(result);
}

/* --- the functions of a row --------------------------------------------------------- */

static int rule_wants(sonde_rule_run *run, const sonde_tensor_info *info, uint32_t id)
{
    python_rule *self = rule_of(run);
    PyObject *tensor = NULL, *result = NULL;
    const sonde_tensor_info *original =
        info->same_as != id ? sonde_rule_info(run, info->same_as) : NULL;
    int need = SONDE_RULE_IGNORE;
    call now;

    if (!enter(self, &now)) {
        return need;
    }
    tensor = sonde__python_tensor_info(info, id);
    if (tensor != NULL) {
        result = PyObject_CallMethod(self->judge, "wants", "(Oz)", tensor,
                                     original != NULL ? original->name : NULL);
    }
    if (result != NULL && PyLong_Check(result)) {
        const long given = PyLong_AsLong(result);

        if (given >= 0 && (size_t)given < self->row.need_count) {
            need = (int)given;
        }
        Py_DECREF(result);
    } else {
        answer(run, result);
    }
    Py_XDECREF(tensor);
    leave(self, &now);
    return need;
}

static sonde_err rule_bind(sonde_rule_run *run, size_t i, sonde_diag *diag)
{
    python_rule *self = rule_of(run);
    size_t count = 0;
    const sonde_rule_tensor *tensor = &sonde_rule_tensors(run, &count)[i];
    call now;

    (void)diag;
    if (enter(self, &now)) {
        answer(run, PyObject_CallMethod(self->judge, "bind", "(Ii)", (unsigned)tensor->id,
                                        tensor->need));
        leave(self, &now);
    }
    return SONDE_OK;
}

static void rule_observe(sonde_rule_run *run, sonde_rule_tensor *tensor,
                         const sonde_observation *observation)
{
    python_rule *self = rule_of(run);
    PyObject *values = NULL, *sketch = NULL, *result = NULL;
    size_t count = 0;
    const unsigned how = self->needs[tensor->need].how;
    const size_t place = (size_t)(tensor - sonde_rule_tensors(run, &count));
    call now;

    if (!enter(self, &now)) {
        return;
    }
    values = (how & SONDE_HOW_RAW) != 0 && observation->view != NULL
                 ? sonde__python_array_copy(observation->view)
                 : Py_NewRef(Py_None);
    sketch = (how & SONDE_HOW_SKETCH) != 0 && observation->sketch != NULL
                 ? sonde__python_sketch(observation->sketch)
                 : Py_NewRef(Py_None);
    if (values != NULL && sketch != NULL) {
        result = PyObject_CallMethod(
            self->judge, "observe", "(nOOKiiLsL)", (Py_ssize_t)place, values, sketch,
            (unsigned long long)observation->hash, observation->at.micro_batch,
            observation->at.replica, (long long)observation->at.global_step,
            sonde_mode_name(observation->at.mode), (long long)observation->at.mode_step);
    }
    answer(run, result);
    Py_XDECREF(values);
    Py_XDECREF(sketch);
    leave(self, &now);
}

static void rule_program(sonde_rule_run *run, const sonde_program *program)
{
    python_rule *self = rule_of(run);
    const sonde_coordinate *at = sonde_rule_at(run);
    PyObject *result = NULL;
    sonde_diag diag = {0};
    char *text = NULL;
    size_t length = 0;
    call now;

    if (!enter(self, &now)) {
        return;
    }
    if (sonde_program_text(program, &text, &length, &diag) != SONDE_OK) {
        (void)sonde__python_raise(&diag);
    } else {
        result = PyObject_CallMethod(self->judge, "program", "(s#LsL)", text,
                                     (Py_ssize_t)length, (long long)at->global_step,
                                     sonde_mode_name(at->mode), (long long)at->mode_step);
    }
    sonde_release(text);
    answer(run, result);
    leave(self, &now);
}

/* The vital signs of each tensor of the rule, or None where it was not seen. */
static PyObject *rows(sonde_rule_run *run)
{
    size_t count = 0;
    const sonde_rule_tensor *tensors = sonde_rule_tensors(run, &count);
    PyObject *list = PyList_New((Py_ssize_t)count);

    for (size_t i = 0; list != NULL && i < count; i++) {
        PyObject *row = tensors[i].vitals != NULL
                            ? sonde__python_vitals(tensors[i].vitals)
                            : Py_NewRef(Py_None);

        if (row == NULL || PyList_SetItem(list, (Py_ssize_t)i, row) != 0) {
            Py_CLEAR(list);
        }
    }
    return list;
}

static void rule_step(sonde_rule_run *run)
{
    python_rule *self = rule_of(run);
    const sonde_coordinate *at = sonde_rule_at(run);
    PyObject *list = NULL, *result = NULL;
    call now;

    if (!enter(self, &now)) {
        return;
    }
    list = rows(run);
    if (list != NULL) {
        result = PyObject_CallMethod(self->judge, "step", "(OLsLO)", list,
                                     (long long)at->global_step,
                                     sonde_mode_name(at->mode), (long long)at->mode_step,
                                     sonde_rule_any_bad(run) ? Py_True : Py_False);
    }
    answer(run, result);
    Py_XDECREF(list);
    leave(self, &now);
}

static void rule_idle(sonde_rule_run *run, double seconds)
{
    python_rule *self = rule_of(run);
    call now;

    if (enter(self, &now)) {
        answer(run, PyObject_CallMethod(self->judge, "idle", "(d)", seconds));
        leave(self, &now);
    }
}

static void rule_finish(sonde_rule_run *run)
{
    python_rule *self = rule_of(run);
    call now;

    if (enter(self, &now)) {
        answer(run, PyObject_CallMethod(self->judge, "finish", NULL));
        leave(self, &now);
    }
}

/* --- rows --------------------------------------------------------------------------- */

static bool read_need(PyObject *tuple, sonde_rule_need *need)
{
    long long every = 0, first = 0, row = 0, row_every = 0;
    int optional = 0;

    if (!PyArg_ParseTuple(tuple, "sIpILLLL", &need->what, &need->how, &optional,
                          &need->roles, &every, &first, &row, &row_every)) {
        return false;
    }
    need->optional = optional != 0;
    need->when = (sonde_schedule){
        .every = every, .first = first, .row = row, .row_every = row_every};
    return true;
}

/* description: (name, summary, condition, advice, modes, needs, whether it reads programs), the
 * texts of which live as long as it does. */
static bool read_row(python_rule *self, PyObject *description)
{
    sonde_rule *row = &self->row;
    PyObject *needs = NULL;
    int reads = 0;

    *row = (sonde_rule){.abi = SONDE_RULE_ABI,
                        .state_size = sizeof(void *),
                        .wants = rule_wants,
                        .bind = rule_bind,
                        .observe = rule_observe,
                        .step = rule_step,
                        .idle = rule_idle,
                        .finish = rule_finish};
    if (!PyArg_ParseTuple(description, "ssssIO!p", &row->name, &row->summary,
                          &row->condition, &row->advice, &row->modes, &PyTuple_Type,
                          &needs, &reads)) {
        return false;
    }
    row->program = reads != 0 ? rule_program : NULL;
    row->need_count = (size_t)PyTuple_Size(needs);
    self->needs = PyMem_Calloc(row->need_count + 1, sizeof *self->needs);
    row->needs = self->needs;
    if (self->needs == NULL) {
        (void)PyErr_NoMemory();
        return false;
    }
    for (size_t i = 0; i < row->need_count; i++) {
        if (!read_need(PyTuple_GetItem(needs, (Py_ssize_t)i), &self->needs[i])) {
            return false;
        }
    }
    return true;
}

static bool add_rule(sonde_rules *rules, python_rule *self, PyObject *judge)
{
    const sonde_rule *taken = NULL;
    sonde_diag diag = {0};

    self->judge = Py_NewRef(judge);
    self->texts = PyDict_New();
    self->description = PyObject_GetAttrString(judge, "description");
    if (self->texts == NULL || self->description == NULL ||
        !read_row(self, self->description)) {
        return false;
    }
    if (sonde_rule_by_name(self->row.name, &taken, NULL) == SONDE_OK) {
        (void)sonde__python_bad_value("rules", "a name that no built-in rule has",
                                      self->row.name);
        return false;
    }
    if (sonde_rules_add_rule(rules, &self->row, NULL, &diag) != SONDE_OK) {
        (void)sonde__python_raise(&diag);
        return false;
    }
    return true;
}

bool sonde__python_add_rules(sonde_rules *rules, PyObject *judges, unsigned long *judging,
                             sonde__python_rules **out)
{
    const size_t count = (size_t)PyTuple_Size(judges);
    sonde__python_rules *made =
        PyMem_Calloc(1, sizeof *made + count * sizeof made->rules[0]);

    if (made == NULL) {
        (void)PyErr_NoMemory();
        return false;
    }
    *out = made;
    for (size_t i = 0; i < count; i++) {
        made->rules[i].judging = judging;
        made->count = i + 1;
        if (!add_rule(rules, &made->rules[i], PyTuple_GetItem(judges, (Py_ssize_t)i))) {
            return false;
        }
    }
    return true;
}

void sonde__python_drop_rules(sonde__python_rules *rules)
{
    for (size_t i = 0; rules != NULL && i < rules->count; i++) {
        Py_CLEAR(rules->rules[i].judge);
    }
}

void sonde__python_free_rules(sonde__python_rules *rules)
{
    if (rules == NULL) {
        return;
    }
    sonde__python_drop_rules(rules);
    for (size_t i = 0; i < rules->count; i++) {
        Py_XDECREF(rules->rules[i].description);
        Py_XDECREF(rules->rules[i].texts);
        PyMem_Free(rules->rules[i].needs);
    }
    PyMem_Free(rules);
}
