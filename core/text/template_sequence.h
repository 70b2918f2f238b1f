/* SPDX-License-Identifier: ISC */
/*
 * The filters of templates that are of sequences and dicts: rows of
 * tmpl_filters[] call them.
 */
#ifndef CORE_TEXT_TEMPLATE_SEQUENCE_H
#define CORE_TEXT_TEMPLATE_SEQUENCE_H

#include "core/text/template_call.h"

/* tmpl_f_NAME() is the filter NAME. */
int tmpl_f_batch(TMPL_CALL);
int tmpl_f_dictsort(TMPL_CALL);
int tmpl_f_first(TMPL_CALL);
int tmpl_f_items(TMPL_CALL);
int tmpl_f_join(TMPL_CALL);
int tmpl_f_last(TMPL_CALL);
int tmpl_f_list(TMPL_CALL);
int tmpl_f_map(TMPL_CALL);
int tmpl_f_max(TMPL_CALL);
int tmpl_f_min(TMPL_CALL);
int tmpl_f_reject(TMPL_CALL);
int tmpl_f_rejectattr(TMPL_CALL);
int tmpl_f_reverse(TMPL_CALL);
int tmpl_f_select(TMPL_CALL);
int tmpl_f_selectattr(TMPL_CALL);
int tmpl_f_sort(TMPL_CALL);
int tmpl_f_sum(TMPL_CALL);
int tmpl_f_unique(TMPL_CALL);

#endif
