/*
 * nn.h - all headers of libsonde_nn: models, sessions, data, trainers and jobs.
 */
#ifndef SONDE_NN_H
#define SONDE_NN_H

#include <sonde/nn/dataset.h>
#include <sonde/nn/evaluator.h>
#include <sonde/nn/job.h>
#include <sonde/nn/loader.h>
#include <sonde/nn/model.h>
#include <sonde/nn/onnx.h>
#include <sonde/nn/optimizer.h>
#include <sonde/nn/plan.h>
#include <sonde/nn/ranks.h>
#include <sonde/nn/session.h>
#include <sonde/nn/trainer.h>

#endif
