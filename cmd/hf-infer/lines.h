/* SPDX-License-Identifier: ISC */
/*
 * Lines that a person types at a terminal, which standard input and output are:
 * through libedit, with a history, where it is installed and can drive the
 * terminal, else as the terminal gives them.  From lines_open() to
 * lines_close() Ctrl-C ends no program.
 */
#ifndef HF_INFER_LINES_H
#define HF_INFER_LINES_H

#include <stdbool.h>

#include "core/str.h"

void lines_open(void);
void lines_close(void);

/*
 * lines_next() shows the prompt and waits for a line, without its newline: 1, 0
 * at the end (Ctrl-D), or LINES_STOPPED after Ctrl-C.  What was typed before
 * that only an editor knows.
 */
#define LINES_STOPPED 2
int lines_next(const char *prompt, struct str *line);

/* lines_stopped(): was Ctrl-C pressed since lines_next() returned? */
bool lines_stopped(void);

#endif
