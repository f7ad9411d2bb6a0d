/*
 * python_api.h - CPython's limited API, the same binary for 3.11 and later, and what the
 * files of the extension module share.
 */
#ifndef SONDE_PYTHON_API_H
#define SONDE_PYTHON_API_H

#define Py_LIMITED_API 0x030B0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <sonde/print.h>
#include <sonde/rules.h>
#include <sonde/sketch.h>
#include <sonde/tensor.h>

/* --- errors ------------------------------------------------------------------------- */

/* Adds SondeError and its subclasses to the module. False: an exception is set. */
bool sonde__python_add_errors(PyObject *module);
/* Raises diag as the exception of its code, with the attributes code, where, found and
 * expected. Returns NULL. */
PyObject *sonde__python_raise(const sonde_diag *diag);
/* Raises BadValueError for an argument. Returns NULL. */
PyObject *sonde__python_bad_value(const char *where, const char *expected,
                                  const char *found);

/* --- tensors ------------------------------------------------------------------------ */

/*
 * The memory of a tensor of PyTorch, or of any object with DLPack's C exchange table or
 * the buffer protocol, as a view. Nothing is copied and no reference is taken: the view
 * is valid while the object is. False if the object has no memory that this process can
 * read as it lies there (another device, a sparse or distributed tensor, no tensor); no
 * exception is set then.
 *
 * Cost: about 20 ns for a torch.Tensor of torch 2.10 or newer.
 */
bool sonde__python_view(PyObject *object, sonde_view *view);

/* What is_tensor means by a tensor: torch.Tensor. */
void sonde__python_set_tensor_type(PyObject *type);
bool sonde__python_is_tensor(PyObject *object);
/* A tensor of a floating or complex dtype. */
bool sonde__python_is_float(PyObject *object);
/* A tensor of integers in readable memory. */
bool sonde__python_is_integer(PyObject *object);

/* --- findings ----------------------------------------------------------------------- */

/* (rule, severity, tensor, mode, step, mode_step, last_step, steps, statistic, value,
 * threshold, message, advice, id): a new tuple, in the order of sonde.Finding. */
PyObject *sonde__python_finding(const sonde_finding *finding);
/* A new list of all findings of rules. */
PyObject *sonde__python_findings(sonde_rules *rules);
/* (count, nan, pos_inf, neg_inf, zero, min, ..., sum): a new tuple, in the order of
 * sonde_vitals and sonde.Vitals. What norms lack is NaN. */
PyObject *sonde__python_vitals(const sonde_vitals *vitals);
/* (name, dtype, shape, role, module, op, id, note): a new tuple, in the order of
 * sonde.TensorInfo. */
PyObject *sonde__python_tensor_info(const sonde_tensor_info *info, uint32_t id);

/* --- rules in Python ---------------------------------------------------------------- */

typedef struct sonde__python_rules sonde__python_rules;

/*
 * Adds a tuple of objects of python/sonde/rules.py. While one of them is called, *judging
 * (may be NULL) is the number of the thread. False: an exception is set. *out is set
 * unless memory runs out, and freed by sonde__python_free_rules after `rules` is
 * destroyed.
 */
bool sonde__python_add_rules(sonde_rules *rules, PyObject *judges, unsigned long *judging,
                             sonde__python_rules **out);
/* Lets the objects go: nothing is called any more. Both accept NULL. */
void sonde__python_drop_rules(sonde__python_rules *rules);
void sonde__python_free_rules(sonde__python_rules *rules);

/* --- arrays ------------------------------------------------------------------------- */

/* A new object with the buffer protocol over a view; owner (may be NULL) is kept alive.
 * With owned, the data is released by sonde_release. Elements that Python's struct
 * module lacks (bfloat16, float8) appear as unsigned integers of their size. NULL: an
 * exception is set, and owned data was released. */
PyObject *sonde__python_array(const sonde_view *view, PyObject *owner, bool owned);
/* The same with a copy of the elements, in row-major order. */
PyObject *sonde__python_array_copy(const sonde_view *view);
/* A copy of a sketch as an object. */
PyObject *sonde__python_sketch(const sonde_sketch *sketch);

/* --- printing ----------------------------------------------------------------------- */

/* Reads (summarize_threshold, edge_items, max_line_width, digits, float_format, separator,
 * open_bracket, close_bracket). False: an exception is set. */
bool sonde__python_read_layout(PyObject *layout, sonde_print_options *options);

/* --- attributes --------------------------------------------------------------------- */

/* object.text, a new reference, or NULL with an exception; *name keeps the interned text
 * between calls. */
PyObject *sonde__python_attribute(PyObject *object, PyObject **name, const char *text);

/* --- types -------------------------------------------------------------------------- */

/* Each adds its types to the module. False: an exception is set. */
bool sonde__python_add_array(PyObject *module);
bool sonde__python_add_sketch(PyObject *module);
bool sonde__python_add_watch(PyObject *module);
bool sonde__python_add_hook(PyObject *module);
bool sonde__python_add_backward(PyObject *module);
bool sonde__python_add_calls(PyObject *module);
/* Adds Passing, which modes of torch.overrides call. */
bool sonde__python_add_passing(PyObject *module);
bool sonde__python_add_trial(PyObject *module);
bool sonde__python_add_graph(PyObject *module);
bool sonde__python_add_session(PyObject *module);
/* Adds a type made from spec under its name, and stores it in *out (may be NULL). */
bool sonde__python_add_type(PyObject *module, PyType_Spec *spec, PyObject **out);

#endif
