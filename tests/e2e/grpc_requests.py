"""Infer requests of one INT32 input and the values of their replies, for the clients of the gRPC interoperability cases."""
import numpy as np
from tritonclient.grpc import service_pb2 as pb

LONG = 60  # seconds: a deadline that only a server that hangs meets


def request(model, values, name=""):
    values = np.array(values, dtype=np.int32)
    out = pb.ModelInferRequest(model_name=model, id=name, raw_input_contents=[values.tobytes()])
    shape = [1, values.size] if model == "one" else [values.size]
    out.inputs.add(name="IN", datatype="INT32", shape=shape)
    return out


def values_of(reply):
    return np.frombuffer(reply.raw_output_contents[0], dtype=np.int32).tolist()
