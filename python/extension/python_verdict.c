/*
 * python_verdict.c - what the rules of a watch say so far: findings, the verdict, and which
 * rules had the data they need.
 */
#include "extension/python_watch.h"

#include <string.h>

PyObject *sonde__python_watch_findings(PyObject *object, PyObject *unused)
{
    sonde__python_watch *self = (sonde__python_watch *)object;
    PyObject *list = NULL;

    (void)unused;
    if (sonde__python_is_judging(self)) {
        return NULL;
    }
    if (self->rules == NULL || self->generation != sonde__python_generation()) {
        return PyList_New(0);
    }
    sonde__python_lock(self);
    list = sonde__python_findings(self->rules);
    sonde__python_unlock(self);
    return list;
}

PyObject *sonde__python_watch_verdict(PyObject *object, PyObject *unused)
{
    sonde__python_watch *self = (sonde__python_watch *)object;
    char text[2048] = "";

    (void)unused;
    if (sonde__python_is_judging(self)) {
        return NULL;
    }
    if (self->rules == NULL || self->generation != sonde__python_generation()) {
        return Py_BuildValue("(ss)", sonde_verdict_name(SONDE_VERDICT_NOT_JUDGED), text);
    }
    sonde__python_lock(self);
    const sonde_verdict verdict = sonde_rules_verdict(self->rules);
    (void)sonde_verdict_text(&verdict, text, sizeof text);
    sonde__python_unlock(self);
    return Py_BuildValue("(sN)", sonde_verdict_name(verdict.word),
                         PyUnicode_DecodeUTF8(text, (Py_ssize_t)strlen(text), "replace"));
}

PyObject *sonde__python_watch_accounts(PyObject *object, PyObject *unused)
{
    sonde__python_watch *self = (sonde__python_watch *)object;
    PyObject *list = PyList_New(0);

    (void)unused;
    if (list == NULL || sonde__python_is_judging(self)) {
        Py_XDECREF(list);
        return NULL;
    }
    if (self->rules == NULL || self->generation != sonde__python_generation()) {
        return list;
    }
    sonde__python_lock(self);
    for (size_t i = 0; list != NULL && i < sonde_rules_count(self->rules); i++) {
        sonde_rule_account account;

        sonde_rules_account(self->rules, i, &account);
        const bool judged = account.judged && account.steps > 0;
        PyObject *row = Py_BuildValue("(sNs)", account.rule->name,
                                      PyBool_FromLong(judged), account.lacked);
        if (row == NULL || PyList_Append(list, row) != 0) {
            Py_CLEAR(list);
        }
        Py_XDECREF(row);
    }
    sonde__python_unlock(self);
    return list;
}
