/*
 * python_module.c - the extension module sonde._sonde, and conversions that its types share.
 */
#include "python/python_api.h"

#include <string.h>

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

/* --- conversions -------------------------------------------------------------------- */

PyObject *sonde__python_vitals(const sonde_vitals *v)
{
    return Py_BuildValue("(KKKKKddddddddd)", (unsigned long long)v->count,
                         (unsigned long long)v->nan, (unsigned long long)v->pos_inf,
                         (unsigned long long)v->neg_inf, (unsigned long long)v->zero,
                         v->min, v->max, v->abs_min, v->abs_max, v->mean, v->m2, v->l1,
                         v->sumsq, v->sum);
}

PyObject *sonde__python_finding(const sonde_finding *f)
{
    char id[24];

    (void)PyOS_snprintf(id, sizeof id, "%016llx", (unsigned long long)f->id);
    return Py_BuildValue("(ssssLLLKsddsss)", f->rule, sonde_severity_name(f->severity),
                         f->tensor, sonde_mode_name(f->mode), (long long)f->step,
                         (long long)f->mode_step, (long long)f->last_step,
                         (unsigned long long)f->steps, f->statistic, f->value,
                         f->threshold, f->message, f->advice, id);
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

/* --- the module --------------------------------------------------------------------- */

PyDoc_STRVAR(vitals_doc, "vitals_of(tensor)\n--\n\n"
                         "The vital signs of a tensor or array, as a tuple.");

static PyObject *vitals_of(PyObject *module, PyObject *tensor)
{
    sonde_view view;
    sonde_vitals vitals;

    (void)module;
    if (!sonde__python_view(tensor, &view)) {
        return sonde__python_bad_value("vitals_of", "a tensor in this process's memory",
                                       "an object without readable elements");
    }
    sonde_vitals_of(&view, &vitals);
    return sonde__python_vitals(&vitals);
}

static PyMethodDef functions[] = {{"vitals_of", vitals_of, METH_O, vitals_doc},
                                  {NULL, NULL, 0, NULL}};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    "_sonde",
    "The C core of sonde; use the package sonde.",
    -1, /* types are process-wide, so one interpreter */
    functions,
    NULL,
    NULL,
    NULL,
    NULL};

PyMODINIT_FUNC PyInit__sonde(void);

PyMODINIT_FUNC PyInit__sonde(void)
{
    PyObject *module = PyModule_Create(&definition);

    if (module != NULL &&
        !(sonde__python_add_errors(module) && sonde__python_add_array(module) &&
          sonde__python_add_watch(module) && sonde__python_add_trial(module))) {
        Py_CLEAR(module);
    }
    return module;
}
