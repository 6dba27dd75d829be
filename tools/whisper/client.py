#!/usr/bin/env python3
"""The path that guides name; the program is python/clients/whisper_client.py."""
import os
import runpy
import sys

CLIENTS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "python", "clients")
sys.path.insert(0, CLIENTS)
runpy.run_path(os.path.join(CLIENTS, "whisper_client.py"), run_name="__main__")
