"""Write bireme/serving/open_inference.binpb from open_inference.proto (needs grpcio-tools).

A serialised description is read by every version of protobuf from 5 on, which generated Python
modules are not; and messages made from it in a pool of their own do not meet those of a client
library in the same process.
"""

import pathlib
import sys

from grpc_tools import protoc

FOLDER = pathlib.Path(__file__).resolve().parents[1] / "bireme" / "serving"

if __name__ == "__main__":
    out = FOLDER / "open_inference.binpb"
    arguments = ["protoc", f"-I{FOLDER}", f"--descriptor_set_out={out}", "open_inference.proto"]
    sys.exit(protoc.main(arguments))
