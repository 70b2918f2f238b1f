/*
 * Opcodes whose argument is a line of text: Python 2 wrote them, and some tools
 * that rewrite pickles.
 */
#ifndef KVC_CONVERT_PICKLE_TEXT_H
#define KVC_CONVERT_PICKLE_TEXT_H

#include "cmd/kvc-convert/pickle.h"

pickle_op pickle_op_int, pickle_op_long, pickle_op_float, pickle_op_string,
    pickle_op_unicode, pickle_op_get, pickle_op_put;

#endif
