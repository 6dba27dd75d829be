import json
import numpy as np
import triton_python_backend_utils as pb_utils


def call(model, tensors, outputs, **options):
    request = pb_utils.InferenceRequest(model_name=model, inputs=tensors, requested_output_names=outputs)
    return request.exec(**options)


class TritonPythonModel:
    """OUT = JSON of what models called from here answered: one response, several, and an error."""

    def execute(self, requests):
        out = []
        for r in requests:
            values = pb_utils.get_input_tensor_by_name(r, "IN").as_numpy()
            tensor = pb_utils.Tensor("IN_INT32", values)
            one = call("types", [tensor], ["OUT_INT32"])
            echo = pb_utils.get_output_tensor_by_name(one, "OUT_INT32").as_numpy().tolist()
            many = call("repeat", [pb_utils.Tensor("IN", values)], ["OUT", "IDX"], decoupled=True)
            stream = [int(pb_utils.get_output_tensor_by_name(x, "OUT").as_numpy()[0])
                      for x in many if not x.has_error() and x.output_tensors()]
            failed = call("failing", [pb_utils.Tensor("CODE", np.array([5], np.int32))], ["OUT"])
            text = json.dumps({"echo": echo, "stream": stream, "error": failed.error().message()})
            out.append(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.array([text], object))]))
        return out
