/*
 * python_convert.c - findings, vital signs and tensors as Python's objects, and types.
 */
#include "extension/python_api.h"

#include <math.h>

bool sonde__python_add_type(PyObject *module, PyType_Spec *spec, PyObject **out)
{
    PyObject *type = PyType_FromModuleAndSpec(module, spec, NULL);

    if (type == NULL || PyModule_AddType(module, (PyTypeObject *)type) != 0) {
        Py_XDECREF(type);
        return false;
    }
    if (out != NULL) {
        *out = Py_NewRef(type);
    }
    Py_DECREF(type);
    return true;
}

PyObject *sonde__python_attribute(PyObject *object, PyObject **name, const char *text)
{
    if (*name == NULL) {
        *name = PyUnicode_InternFromString(text);
    }
    return *name != NULL ? PyObject_GetAttr(object, *name) : NULL;
}

/* --- conversions -------------------------------------------------------------------- */

PyObject *sonde__python_vitals(const sonde_vitals *v)
{
    PyObject *zero = sonde_vitals_are_norms(v) ? PyFloat_FromDouble(NAN)
                                               : PyLong_FromUnsignedLongLong(v->zero);

    return Py_BuildValue("(KKKKNddddddddd)", (unsigned long long)v->count,
                         (unsigned long long)v->nan, (unsigned long long)v->pos_inf,
                         (unsigned long long)v->neg_inf, zero, v->min, v->max, v->abs_min,
                         v->abs_max, v->mean, v->m2, v->l1, v->sumsq, v->sum);
}

/* None for step 0. */
static PyObject *step_or_none(int64_t step)
{
    return step > 0 ? PyLong_FromLongLong(step) : Py_NewRef(Py_None);
}

PyObject *sonde__python_finding(const sonde_finding *f)
{
    char id[24], cause[24], place[4200];

    (void)PyOS_snprintf(id, sizeof id, "%016llx", (unsigned long long)f->id);
    (void)PyOS_snprintf(cause, sizeof cause, "%016llx",
                        (unsigned long long)f->because_of);
    (void)sonde_program_place_text(NULL, f->place, place, sizeof place);
    return Py_BuildValue(
        "(ssssLLLKsddssszzNNz)", f->rule, sonde_severity_name(f->severity), f->tensor,
        sonde_mode_name(f->mode), (long long)f->step, (long long)f->mode_step,
        (long long)f->last_step, (unsigned long long)f->steps, f->statistic, f->value,
        f->threshold, f->message, f->advice, id, f->because_of != 0 ? cause : NULL,
        f->raised_step > 0 ? sonde_severity_name(f->raised_from) : NULL,
        step_or_none(f->raised_step), step_or_none(f->resolved_step),
        place[0] != '\0' ? place : NULL);
}

PyObject *sonde__python_findings(sonde_rules *rules)
{
    size_t count = 0;
    const sonde_finding *findings = sonde_rules_findings(rules, &count);
    PyObject *list = PyList_New(0);

    for (size_t i = 0; list != NULL && i < count; i++) {
        PyObject *finding = sonde__python_finding(&findings[i]);

        if (finding == NULL || PyList_Append(list, finding) != 0) {
            Py_CLEAR(list);
        }
        Py_XDECREF(finding);
    }
    return list;
}

PyObject *sonde__python_tensor_info(const sonde_tensor_info *info, uint32_t id)
{
    PyObject *shape = PyTuple_New(info->rank);
    PyObject *tuple = NULL;

    for (int i = 0; shape != NULL && i < info->rank; i++) {
        PyObject *size = PyLong_FromLongLong(info->shape[i]);

        if (size == NULL || PyTuple_SetItem(shape, i, size) != 0) {
            Py_CLEAR(shape);
        }
    }
    if (shape != NULL) {
        tuple = Py_BuildValue("(ssOsssIs)", info->name, sonde_dtype_name(info->dtype),
                              shape, sonde_role_name(info->role), info->module, info->op,
                              (unsigned)id, info->note != NULL ? info->note : "");
    }
    Py_XDECREF(shape);
    return tuple;
}
