// Paddle's C++ interface for custom operators, on Bireme.
//
// Sources that include "paddle/extension.h" and describe operators with PD_BUILD_OP compile
// unchanged. What is here: Tensor, places and types, the makers of tensors, dispatch by type, and
// the description of operators. Calling framework operators from C++ is not part of it.
#pragma once

#include "bireme/dispatch.h"
#include "bireme/op.h"
#include "bireme/tensor.h"
#include "bireme/types.h"
