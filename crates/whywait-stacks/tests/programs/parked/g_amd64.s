// The address of the goroutine that calls.

#include "textflag.h"

TEXT ·own(SB), NOSPLIT, $0-8
	MOVQ (TLS), AX
	MOVQ AX, ret+0(FP)
	RET
