/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/* Questions in datagrams. */
#pragma once

#include "core/layout.h"

/* What a request is: `kind` of request_record. */
enum work_kind { WORK_STREAM, WORK_DATAGRAM, WORK_HTTP2, WORK_JOB, WORK_HANDED_JOB };
IN_BTF(enum work_kind, work_kind);
