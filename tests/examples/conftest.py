from __future__ import annotations

import sys
from pathlib import Path

# The examples are no part of what is installed. Appended, so that nothing here hides a package.
sys.path.append(str(Path(__file__).resolve().parents[2]))
