#!/usr/bin/env python3
"""The path that guides name; the program is python/clients/e2e_grpc_speculative_decoding_client.py."""
import os
import runpy
import sys

CLIENTS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "python", "clients")
sys.path.insert(0, CLIENTS)
runpy.run_path(os.path.join(CLIENTS, "e2e_grpc_speculative_decoding_client.py"), run_name="__main__")
