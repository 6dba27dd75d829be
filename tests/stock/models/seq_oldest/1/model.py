import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    """OUT = the sum of IN since START, and the controls START, END, READY, CORRID."""

    def initialize(self, args):
        self.sums = {}

    def execute(self, requests):
        return [self.answer(r) for r in requests]

    def answer(self, request):
        def value(name):
            return pb_utils.get_input_tensor_by_name(request, name).as_numpy().ravel()[0]
        start, end, ready, who = (value(name) for name in ("START", "END", "READY", "CORRID"))
        total = value("IN") + (0 if start else self.sums.get(who, 0))
        self.sums[who] = total
        if end:
            del self.sums[who]
        return pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.array([total, start, end, ready, who], np.int64))])
