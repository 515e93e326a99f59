"""A module whose import ends its process."""

import os
import signal

os.kill(os.getpid(), signal.SIGSEGV)
