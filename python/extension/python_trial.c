/*
 * python_trial.c - the type _sonde.Trial: reading a run (<sonde/trial.h>) and judging it.
 *
 * Steps are those of a mode; mode "global" counts over all modes. One call at a time: the
 * interpreter's lock is held, but for opening and judging.
 */
#include "extension/python_api.h"

#include <sonde/selector.h>
#include <sonde/trial.h>

#include <string.h>

typedef struct python_trial {
    PyObject_HEAD sonde_trial *trial;
} python_trial;

static sonde_trial *trial_of(PyObject *object)
{
    return ((python_trial *)object)->trial;
}

/* --- arguments ---------------------------------------------------------------------- */

static bool find_mode(const char *name, sonde_mode *mode)
{
    for (int i = 0; i < SONDE_MODE_COUNT; i++) {
        if (strcmp(name, sonde_mode_name((sonde_mode)i)) == 0) {
            *mode = (sonde_mode)i;
            return true;
        }
    }
    (void)sonde__python_bad_value("mode", "train, eval, predict or global", name);
    return false;
}

static bool find_tensor(PyObject *object, const char *name, uint32_t *id)
{
    sonde_diag diag = {0};

    if (sonde_catalogue_find(sonde_trial_catalogue(trial_of(object)), name, id, &diag) ==
        SONDE_OK) {
        return true;
    }
    (void)sonde__python_raise(&diag);
    return false;
}

/* A place as Python names it: tensor, mode, step (-1: the last one at which any of how
 * was saved), worker. */
static bool find_place(PyObject *object, PyObject *arguments, unsigned how, uint32_t *id,
                       sonde_trial_at *where)
{
    const char *name = NULL, *mode = NULL;
    long long step = 0;
    int64_t *steps = NULL;
    size_t count = 0;
    sonde_diag diag = {0};

    *where = (sonde_trial_at){0};
    if (!PyArg_ParseTuple(arguments, "sLsiii", &name, &step, &mode, &where->worker,
                          &where->micro_batch, &where->replica) ||
        !find_mode(mode, &where->mode) || !find_tensor(object, name, id)) {
        return false;
    }
    where->step = step;
    if (step >= 0) {
        return true;
    }
    if (sonde_trial_tensor_steps(trial_of(object), *id, where->mode, how, &steps, &count,
                                 &diag) != SONDE_OK) {
        (void)sonde__python_raise(&diag);
        return false;
    }
    if ((uint64_t)-step > count) {
        sonde_release(steps);
        (void)sonde_diag_set(&diag, SONDE_ENOTFOUND, name, NULL, "saved at %zu steps",
                             count);
        (void)sonde__python_raise(&diag);
        return false;
    }
    where->step = steps[count - (size_t)-step];
    sonde_release(steps);
    return true;
}

/* --- life --------------------------------------------------------------------------- */

static PyObject *trial_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords)
{
    allocfunc allocate = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    python_trial *self = NULL;
    const char *path = NULL;
    sonde_trial_options options = {.size = sizeof options};
    long long begin = 0, end = 0;
    sonde_diag diag = {0};
    sonde_err err = SONDE_OK;

    (void)keywords;
    if (!PyArg_ParseTuple(arguments, "sLL", &path, &begin, &end)) {
        return NULL;
    }
    self = (python_trial *)allocate(type, 0);
    if (self == NULL) {
        return NULL;
    }
    options.begin = begin;
    options.end = end;
    Py_BEGIN_ALLOW_THREADS err = sonde_trial_open(path, &options, &self->trial, &diag);
    Py_END_ALLOW_THREADS if (err != SONDE_OK)
    {
        Py_DECREF((PyObject *)self);
        return sonde__python_raise(&diag);
    }
    return (PyObject *)self;
}

static void trial_dealloc(PyObject *object)
{
    PyTypeObject *type = Py_TYPE(object);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);

    sonde_trial_close(trial_of(object));
    release(object);
    Py_DECREF((PyObject *)type);
}

PyDoc_STRVAR(refresh_doc,
             "refresh()\n--\n\nReads what is new; whether there was anything.");

static PyObject *trial_refresh(PyObject *object, PyObject *unused)
{
    sonde_diag diag = {0};
    bool changed = false;

    (void)unused;
    if (sonde_trial_refresh(trial_of(object), &changed, &diag) != SONDE_OK) {
        return sonde__python_raise(&diag);
    }
    return PyBool_FromLong(changed);
}

PyDoc_STRVAR(describe_doc, "describe()\n--\n\nThe run, as a dictionary.");

static PyObject *trial_describe(PyObject *object, PyObject *unused)
{
    static const char *const statuses[] = {[SONDE_RUN_RUNNING] = "running",
                                           [SONDE_RUN_ENDED] = "ended",
                                           [SONDE_RUN_CRASHED] = "crashed"};
    sonde_run_info info;

    (void)unused;
    sonde_trial_describe(trial_of(object), &info);
    return Py_BuildValue(
        "{ss ss ss ss ss ss ss ss si sL sK sK sK sK sK sO sO sd}", "path", info.path,
        "id", info.id, "program", info.program, "model", info.model, "created",
        info.created, "end_reason", info.end_reason, "end_text", info.end_text, "status",
        statuses[info.status], "world", info.world, "last_step",
        (long long)info.last_step, "records", (unsigned long long)info.records, "bytes",
        (unsigned long long)info.bytes, "rows", (unsigned long long)info.rows, "sketches",
        (unsigned long long)info.sketches, "lost", (unsigned long long)info.lost,
        "resumed", info.resumed ? Py_True : Py_False, "foreign",
        info.foreign ? Py_True : Py_False, "seconds", info.seconds);
}

/* --- tensors and steps -------------------------------------------------------------- */

/* The ids that a selector selects. An @name that is no role is a recorded collection. */
static bool select_ids(PyObject *object, const char *text, uint32_t **ids, size_t *count)
{
    sonde_selector *selector = NULL;
    sonde_diag diag = {0};
    const bool good =
        sonde_selector_create(text, &selector, &diag) == SONDE_OK &&
        sonde_selector_resolve(selector, sonde_trial_catalogue(trial_of(object)), ids,
                               count, &diag) == SONDE_OK;

    sonde_selector_destroy(selector);
    if (!good) {
        (void)sonde__python_raise(&diag);
    }
    return good;
}

PyDoc_STRVAR(tensors_doc, "tensors(selector)\n--\n\n"
                          "(name, dtype, shape, role, module, op, id, note) of "
                          "each.");

static PyObject *trial_tensors(PyObject *object, PyObject *arguments)
{
    const sonde_catalogue *catalogue = sonde_trial_catalogue(trial_of(object));
    const char *text = NULL;
    uint32_t *ids = NULL;
    size_t count = 0;
    PyObject *list = NULL;

    if (!PyArg_ParseTuple(arguments, "s", &text) ||
        !select_ids(object, text, &ids, &count)) {
        return NULL;
    }
    list = PyList_New(0);
    for (size_t i = 0; list != NULL && i < count; i++) {
        PyObject *tuple =
            sonde__python_tensor_info(sonde_catalogue_info(catalogue, ids[i]), ids[i]);

        if (tuple == NULL || PyList_Append(list, tuple) != 0) {
            Py_CLEAR(list);
        }
        Py_XDECREF(tuple);
    }
    sonde_release(ids);
    return list;
}

static PyObject *new_array(sonde_dtype dtype, void *data, size_t count)
{
    const int64_t shape[1] = {(int64_t)count};
    const sonde_view view = sonde_view_of(dtype, 1, shape, data);

    return sonde__python_array(&view, NULL, true);
}

PyDoc_STRVAR(
    steps_doc,
    "steps(mode, tensor, incomplete=False)\n--\n\n"
    "The steps at which anything, or the tensor, was saved, as int64; incomplete: "
    "those too that some workers have not ended.");

static PyObject *trial_steps(PyObject *object, PyObject *arguments)
{
    const char *mode_name = NULL, *name = NULL;
    const int64_t *all = NULL;
    int64_t *steps = NULL;
    size_t count = 0;
    sonde_mode mode = SONDE_MODE_GLOBAL;
    sonde_diag diag = {0};
    uint32_t id = 0;
    int incomplete = 0;

    if (!PyArg_ParseTuple(arguments, "sz|p", &mode_name, &name, &incomplete) ||
        !find_mode(mode_name, &mode)) {
        return NULL;
    }
    if (name == NULL) {
        all = sonde_trial_steps(trial_of(object), mode, incomplete != 0, &count);
        if (all == NULL) {
            return PyErr_NoMemory();
        }
        return PyBytes_FromStringAndSize((const char *)all,
                                         (Py_ssize_t)(count * sizeof *all));
    }
    if (!find_tensor(object, name, &id)) {
        return NULL;
    }
    if (sonde_trial_tensor_steps(trial_of(object), id, mode, 0, &steps, &count, &diag) !=
        SONDE_OK) {
        return sonde__python_raise(&diag);
    }
    return new_array(SONDE_I64, steps, count);
}

PyDoc_STRVAR(program_doc,
             "program(mode, step)\n--\n\n"
             "The JSON text of the program in force at a step of a mode, -1: "
             "the last; None if none is recorded.");

static PyObject *trial_program(PyObject *object, PyObject *arguments)
{
    const char *mode_name = NULL;
    sonde_mode mode = SONDE_MODE_TRAIN;
    sonde_program *program = NULL;
    PyObject *result = NULL;
    sonde_diag diag = {0};
    char *text = NULL;
    size_t length = 0;
    long long step = 0;

    if (!PyArg_ParseTuple(arguments, "sL", &mode_name, &step) ||
        !find_mode(mode_name, &mode)) {
        return NULL;
    }
    sonde_err err = sonde_trial_program(trial_of(object), mode, step, &program, &diag);
    if (err == SONDE_ENOTFOUND) {
        Py_RETURN_NONE;
    }
    if (err == SONDE_OK) {
        err = sonde_program_text(program, &text, &length, &diag);
    }
    result = err == SONDE_OK ? PyUnicode_DecodeUTF8(text, (Py_ssize_t)length, "replace")
                             : sonde__python_raise(&diag);
    sonde_release(text);
    sonde_program_destroy(program);
    return result;
}

/* --- values ------------------------------------------------------------------------- */

PyDoc_STRVAR(value_doc,
             "value(name, step, mode, worker, micro_batch, replica)\n--\n\n"
             "A raw value with the buffer protocol, mapped unless it is compressed or "
             "smdebug's; step -1 is the last one.");

static PyObject *trial_value(PyObject *object, PyObject *arguments)
{
    sonde_trial_at where;
    sonde_view view;
    sonde_diag diag = {0};
    uint32_t id = 0;

    if (!find_place(object, arguments, SONDE_HOW_RAW, &id, &where)) {
        return NULL;
    }
    if (sonde_trial_value(trial_of(object), id, &where, &view, &diag) != SONDE_OK) {
        return sonde__python_raise(&diag);
    }
    /* A value of a compressed segment or of smdebug's lies in the trial's own buffer until
     * the next call only. */
    return sonde_trial_is_mapped(trial_of(object), &view)
               ? sonde__python_array(&view, object, false)
               : sonde__python_array_copy(&view);
}

PyDoc_STRVAR(vitals_doc, "vitals(name, step, mode, worker, micro_batch, replica)\n--\n\n"
                         "The vital signs at a step; -1 is the last one.");

static PyObject *trial_vitals(PyObject *object, PyObject *arguments)
{
    sonde_trial_at where;
    sonde_vitals vitals;
    sonde_diag diag = {0};
    uint32_t id = 0;

    if (!find_place(object, arguments, SONDE_HOW_RAW | SONDE_HOW_VITALS | SONDE_HOW_NORMS,
                    &id, &where)) {
        return NULL;
    }
    if (sonde_trial_vitals(trial_of(object), id, &where, &vitals, &diag) != SONDE_OK) {
        return sonde__python_raise(&diag);
    }
    return sonde__python_vitals(&vitals);
}

/* Whether norms answer any of the statistics; unknown ones are refused later. */
static bool any_norm(PyObject *stats)
{
    bool any = false;

    for (Py_ssize_t i = 0; !any && i < PyTuple_Size(stats); i++) {
        PyObject *text = PyUnicode_AsUTF8String(PyTuple_GetItem(stats, i));
        sonde_reduction reduction;

        any =
            text != NULL &&
            sonde_reduction_parse(PyBytes_AsString(text), &reduction, NULL) == SONDE_OK &&
            (sonde_reduction_evidence(&reduction) & SONDE_HOW_NORMS) != 0;
        Py_XDECREF(text);
    }
    PyErr_Clear();
    return any;
}

/* Leaves out the steps that have no more than norms. */
static size_t keep_full(int64_t *steps, sonde_vitals *vitals, size_t count)
{
    size_t kept = 0;

    for (size_t i = 0; i < count; i++) {
        if (!sonde_vitals_are_norms(&vitals[i])) {
            steps[kept] = steps[i];
            vitals[kept++] = vitals[i];
        }
    }
    return kept;
}

/* A column of float64: a reduction of each of the vital signs. */
static PyObject *column(const char *stat, const sonde_vitals *vitals, size_t count)
{
    sonde_reduction reduction;
    sonde_reduced reduced;
    sonde_diag diag = {0};
    PyObject *block = NULL;
    sonde_view view;
    PyObject *made = NULL;
    double *numbers = NULL;

    if (sonde_reduction_parse(stat, &reduction, &diag) != SONDE_OK) {
        return sonde__python_raise(&diag);
    }
    if ((sonde_reduction_evidence(&reduction) & SONDE_HOW_VITALS) == 0) {
        return sonde__python_bad_value(stat, "a statistic of the vital signs",
                                       "a series cannot hold it");
    }
    block = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)(count * sizeof *numbers));
    if (block == NULL) {
        return NULL;
    }
    numbers = (double *)(void *)PyBytes_AsString(block);
    for (size_t i = 0; i < count; i++) {
        sonde_reduce_vitals(&reduction, &vitals[i], &reduced);
        numbers[i] = reduced.number;
    }
    view = sonde_view_of(SONDE_F64, 1, (int64_t[]){(int64_t)count}, numbers);
    made = sonde__python_array(&view, block, false);
    Py_DECREF(block);
    return made;
}

PyDoc_STRVAR(series_doc, "series(name, stats, mode, worker, begin, end)\n--\n\n"
                         "[steps as int64, a float64 column for each statistic].");

static PyObject *trial_series(PyObject *object, PyObject *arguments)
{
    const char *name = NULL, *mode_name = NULL;
    PyObject *stats = NULL, *list = NULL;
    int64_t *steps = NULL;
    sonde_vitals *vitals = NULL;
    size_t count = 0;
    long long begin = 0, end = 0;
    int worker = -1;
    sonde_mode mode = SONDE_MODE_GLOBAL;
    sonde_diag diag = {0};
    uint32_t id = 0;

    if (!PyArg_ParseTuple(arguments, "sO!siLL", &name, &PyTuple_Type, &stats, &mode_name,
                          &worker, &begin, &end) ||
        !find_mode(mode_name, &mode) || !find_tensor(object, name, &id)) {
        return NULL;
    }
    if (sonde_trial_vitals_series(trial_of(object), id, mode, worker, begin, end, &steps,
                                  &vitals, &count, &diag) != SONDE_OK) {
        return sonde__python_raise(&diag);
    }
    count = any_norm(stats) ? count : keep_full(steps, vitals, count);
    list = PyList_New(0);
    for (Py_ssize_t i = -1; list != NULL && i < PyTuple_Size(stats); i++) {
        PyObject *part = NULL;
        PyObject *text = i < 0 ? NULL : PyUnicode_AsUTF8String(PyTuple_GetItem(stats, i));

        if (i < 0) {
            part = new_array(SONDE_I64, steps, count);
        } else if (text != NULL) {
            part = column(PyBytes_AsString(text), vitals, count);
        }
        if (part == NULL || PyList_Append(list, part) != 0) {
            Py_CLEAR(list);
        }
        Py_XDECREF(part);
        Py_XDECREF(text);
    }
    sonde_release(vitals);
    return list;
}

/* --- places ------------------------------------------------------------------------- */

PyDoc_STRVAR(workers_doc, "workers()\n--\n\n[(rank, name)] of the workers found here.");

static PyObject *trial_workers(PyObject *object, PyObject *unused)
{
    PyObject *list = PyList_New(0);
    int rank = 0;

    (void)unused;
    for (size_t i = 0;
         list != NULL && (rank = sonde_trial_worker(trial_of(object), i)) >= 0; i++) {
        PyObject *tuple =
            Py_BuildValue("(is)", rank, sonde_trial_worker_name(trial_of(object), i));

        if (tuple == NULL || PyList_Append(list, tuple) != 0) {
            Py_CLEAR(list);
        }
        Py_XDECREF(tuple);
    }
    return list;
}

PyDoc_STRVAR(collections_doc,
             "collections(tensor)\n--\n\n"
             "Names of the collections that were recorded, or of those that a tensor "
             "belonged to.");

static PyObject *trial_collections(PyObject *object, PyObject *arguments)
{
    PyObject *list = NULL;
    const char *tensor = NULL, *name = NULL;
    uint32_t id = 0;

    if (!PyArg_ParseTuple(arguments, "z", &tensor) ||
        (tensor != NULL && !find_tensor(object, tensor, &id))) {
        return NULL;
    }
    list = PyList_New(0);
    for (size_t i = 0;
         list != NULL && (name = sonde_trial_collection(trial_of(object), i)) != NULL;
         i++) {
        PyObject *text = NULL;

        if (tensor != NULL && !sonde_trial_in_collection(trial_of(object), id, name)) {
            continue;
        }
        text = PyUnicode_FromString(name);
        if (text == NULL || PyList_Append(list, text) != 0) {
            Py_CLEAR(list);
        }
        Py_XDECREF(text);
    }
    return list;
}

PyDoc_STRVAR(mode_step_doc, "mode_step(global_step)\n--\n\n"
                            "(mode, its step); None: there is no such step.");

static PyObject *trial_mode_step(PyObject *object, PyObject *argument)
{
    const long long step = PyLong_AsLongLong(argument);
    sonde_mode mode = SONDE_MODE_GLOBAL;
    int64_t mode_step = 0;

    if (PyErr_Occurred() != NULL) {
        return NULL;
    }
    if (!sonde_trial_mode_step(trial_of(object), step, &mode, &mode_step)) {
        Py_RETURN_NONE;
    }
    return Py_BuildValue("(sL)", sonde_mode_name(mode), (long long)mode_step);
}

/* A step of a mode by name. */
static bool find_step(PyObject *arguments, sonde_mode *mode, long long *step)
{
    const char *name = NULL;

    return PyArg_ParseTuple(arguments, "sL", &name, step) && find_mode(name, mode);
}

PyDoc_STRVAR(global_step_doc, "global_step(mode, step)\n--\n\n"
                              "The global step; None: there is no such step.");

static PyObject *trial_global_step(PyObject *object, PyObject *arguments)
{
    sonde_mode mode = SONDE_MODE_GLOBAL;
    long long step = 0;
    int64_t global = 0;

    if (!find_step(arguments, &mode, &step)) {
        return NULL;
    }
    if (!sonde_trial_global_step(trial_of(object), mode, step, &global)) {
        Py_RETURN_NONE;
    }
    return PyLong_FromLongLong(global);
}

PyDoc_STRVAR(passed_doc,
             "passed(mode, step)\n--\n\n"
             "0: it has passed and nothing was saved at it; 1: it is complete; "
             "2: it may still come.");

static PyObject *trial_passed(PyObject *object, PyObject *arguments)
{
    sonde_mode mode = SONDE_MODE_GLOBAL;
    long long step = 0;

    if (!find_step(arguments, &mode, &step)) {
        return NULL;
    }
    return PyLong_FromLong(
        (long)sonde_trial_has_passed_step(trial_of(object), step, mode));
}

PyDoc_STRVAR(
    wait_doc,
    "wait(mode, step, seconds)\n--\n\n"
    "Refreshes until the step is available; seconds < 0: without a limit. An "
    "exception's code says whether nothing was saved at it, the run ended before "
    "it, or the time is over.");

static PyObject *trial_wait(PyObject *object, PyObject *arguments)
{
    const char *name = NULL;
    sonde_mode mode = SONDE_MODE_GLOBAL;
    long long step = 0;
    double seconds = 0.0;
    sonde_diag diag = {0};
    sonde_err err = SONDE_OK;

    if (!PyArg_ParseTuple(arguments, "sLd", &name, &step, &seconds) ||
        !find_mode(name, &mode)) {
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS err = sonde_trial_wait_for_steps(
        trial_of(object), &(int64_t){step}, 1, mode, seconds, &diag);
    Py_END_ALLOW_THREADS return err != SONDE_OK ? sonde__python_raise(&diag)
                                                : Py_NewRef(Py_None);
}

PyDoc_STRVAR(has_doc,
             "has(name, step, mode, worker, micro_batch, replica)\n--\n\n"
             "What was saved there: 1 the raw value, 2 vital signs, 4 a sketch.");

static PyObject *trial_has(PyObject *object, PyObject *arguments)
{
    sonde_trial_at where;
    uint32_t id = 0;

    if (!find_place(object, arguments, 0, &id, &where)) {
        return NULL;
    }
    return PyLong_FromUnsignedLong(sonde_trial_has(trial_of(object), id, &where));
}

PyDoc_STRVAR(reduce_doc,
             "reduce(stat, name, step, mode, worker, micro_batch, replica)\n--\n\n"
             "A reduction, from what was saved.");

static PyObject *trial_reduce(PyObject *object, PyObject *arguments)
{
    PyObject *text = NULL, *place = NULL;
    sonde_reduction reduction;
    sonde_reduced reduced = {0};
    sonde_trial_at where;
    sonde_diag diag = {0};
    uint32_t id = 0;
    bool found = false;

    text = PyTuple_Size(arguments) > 0
               ? PyUnicode_AsUTF8String(PyTuple_GetItem(arguments, 0))
               : NULL;
    if (text == NULL) {
        return PyErr_Occurred() != NULL
                   ? NULL
                   : sonde__python_bad_value("reduce", "a statistic", "nothing");
    }
    if (sonde_reduction_parse(PyBytes_AsString(text), &reduction, &diag) != SONDE_OK) {
        Py_DECREF(text);
        return sonde__python_raise(&diag);
    }
    Py_DECREF(text);
    place = PyTuple_GetSlice(arguments, 1, PyTuple_Size(arguments));
    if (place == NULL) {
        return NULL;
    }
    found = find_place(object, place, sonde_reduction_evidence(&reduction), &id, &where);
    Py_DECREF(place);
    if (!found) {
        return NULL;
    }
    if (sonde_trial_reduce(trial_of(object), id, &where, &reduction, &reduced, &diag) !=
        SONDE_OK) {
        return sonde__python_raise(&diag);
    }
    return reduction.kind == SONDE_REDUCTION_HASH
               ? PyLong_FromUnsignedLongLong(reduced.hash)
               : PyFloat_FromDouble(reduced.number);
}

/* --- rules -------------------------------------------------------------------------- */

PyDoc_STRVAR(judge_doc, "judge(rules, judges, follow, stall)\n--\n\n"
                        "Findings of a list of rules (None: none) and of rules in "
                        "Python, as tuples.");

/* Between steps: whether Ctrl-C was pressed. Its exception is then set. */
static bool is_interrupted(void *user)
{
    const PyGILState_STATE state = PyGILState_Ensure();
    const bool stops = PyErr_CheckSignals() != 0;

    (void)user;
    PyGILState_Release(state);
    return stops;
}

static PyObject *judge(sonde_trial *trial, sonde_rules *rules,
                       const sonde_rules_pace *pace)
{
    sonde_diag diag = {0};
    sonde_err err = SONDE_OK;

    Py_BEGIN_ALLOW_THREADS err = sonde_rules_judge(rules, trial, pace, &diag);
    Py_END_ALLOW_THREADS if (PyErr_Occurred() != NULL)
    {
        return NULL;
    }
    return err != SONDE_OK ? sonde__python_raise(&diag) : sonde__python_findings(rules);
}

static PyObject *trial_judge(PyObject *object, PyObject *arguments)
{
    const char *text = NULL;
    int follow = 0;
    sonde_rules_pace pace = {.stop = is_interrupted};
    sonde_rules *rules = NULL;
    sonde__python_rules *own = NULL;
    PyObject *findings = NULL, *judges = NULL;
    sonde_diag diag = {0};

    if (!PyArg_ParseTuple(arguments, "zO!pd", &text, &PyTuple_Type, &judges, &follow,
                          &pace.stall)) {
        return NULL;
    }
    pace.follow = follow != 0;
    if (sonde_rules_create(&rules, &diag) != SONDE_OK ||
        (text != NULL && sonde_rules_add_list(rules, text, &diag) != SONDE_OK)) {
        (void)sonde__python_raise(&diag);
    } else if (sonde__python_add_rules(rules, judges, NULL, &own)) {
        findings = judge(trial_of(object), rules, &pace);
    }
    sonde_rules_destroy(rules);
    sonde__python_free_rules(own);
    return findings;
}

/* --- the type ----------------------------------------------------------------------- */

static PyMethodDef methods[] = {
    {"refresh", trial_refresh, METH_NOARGS, refresh_doc},
    {"describe", trial_describe, METH_NOARGS, describe_doc},
    {"tensors", trial_tensors, METH_VARARGS, tensors_doc},
    {"steps", trial_steps, METH_VARARGS, steps_doc},
    {"program", trial_program, METH_VARARGS, program_doc},
    {"value", trial_value, METH_VARARGS, value_doc},
    {"vitals", trial_vitals, METH_VARARGS, vitals_doc},
    {"series", trial_series, METH_VARARGS, series_doc},
    {"workers", trial_workers, METH_NOARGS, workers_doc},
    {"collections", trial_collections, METH_VARARGS, collections_doc},
    {"mode_step", trial_mode_step, METH_O, mode_step_doc},
    {"global_step", trial_global_step, METH_VARARGS, global_step_doc},
    {"passed", trial_passed, METH_VARARGS, passed_doc},
    {"wait", trial_wait, METH_VARARGS, wait_doc},
    {"has", trial_has, METH_VARARGS, has_doc},
    {"reduce", trial_reduce, METH_VARARGS, reduce_doc},
    {"judge", trial_judge, METH_VARARGS, judge_doc},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_new, (void *)trial_new},
    {Py_tp_dealloc, (void *)trial_dealloc},
    {Py_tp_methods, methods},
    {0, NULL},
};

static PyType_Spec spec = {
    .name = "sonde._sonde.Trial",
    .basicsize = sizeof(python_trial),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = slots,
};

bool sonde__python_add_trial(PyObject *module)
{
    return sonde__python_add_type(module, &spec, NULL);
}
