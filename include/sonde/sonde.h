/*
 * sonde.h - all headers of libsonde: watching, recording, reading and judging.
 *
 * Pictures (libsonde_plot) are in <sonde/plot.h>, networks (libsonde_nn) in <sonde/nn.h>.
 */
#ifndef SONDE_SONDE_H
#define SONDE_SONDE_H

#include <sonde/actions.h>
#include <sonde/alloc.h>
#include <sonde/anchor.h>
#include <sonde/catalogue.h>
#include <sonde/control.h>
#include <sonde/diff.h>
#include <sonde/error.h>
#include <sonde/export.h>
#include <sonde/export_run.h>
#include <sonde/hook.h>
#include <sonde/json.h>
#include <sonde/log.h>
#include <sonde/observer.h>
#include <sonde/options.h>
#include <sonde/outfeed.h>
#include <sonde/print.h>
#include <sonde/program.h>
#include <sonde/recorder.h>
#include <sonde/reduction.h>
#include <sonde/rule.h>
#include <sonde/rules.h>
#include <sonde/safetensors.h>
#include <sonde/schedule.h>
#include <sonde/selector.h>
#include <sonde/sketch.h>
#include <sonde/stats.h>
#include <sonde/tap.h>
#include <sonde/tensor.h>
#include <sonde/text.h>
#include <sonde/trial.h>
#include <sonde/watch.h>

#endif
